//! `reorder measure --agreement`: predicted and real text pages of one run.

use super::MeasureArguments;
use super::scenarios::find_program;
use crate::cli::context::Context;
use crate::exit_status::ExitStatus;
use reorder_base::error::{Error, Result};
use reorder_base::hint::{RecordedUse, RunPurpose};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_run::measure::agreement::{compare, real_pages};
use reorder_run::measure::{MeasureRequest, Reach};
use reorder_run::processor;
use reorder_run::runnable;
use reorder_trace::{ImageIdentity, ResolvedTrace};

/// Runs the program once and compares.
pub(super) fn run(arguments: &MeasureArguments, context: &Context) -> Result<ExitStatus> {
    let Some(program) = arguments.program.as_deref() else {
        return Err(Error::usage("no program is given")
            .with_hint("reorder measure PROGRAM -t TRACES --agreement -- ARGUMENTS"));
    };
    let request = arguments.request(find_program(program), None);
    let path = &request.old;
    runnable::check(path, RecordedUse::Simulate)?;
    processor::check_program(path, RunPurpose::Measure)?;
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    let image = ElfFile::parse(&bytes).map_err(|error| error.in_file(path))?;
    let functions = ElfFunctions::collect(&image).map_err(|error| error.in_file(path))?.table;
    let identity = ImageIdentity::of(path, image.build_id());
    let traces = arguments.traces.resolve(path, &identity, &functions, &context.talk)?;
    let trace = of_this_start(&traces.traces, &request)?;
    let report = compare(&request, &image, &functions, trace, &real_pages(&request, Reach::OnePage)?);
    context.print(&report)?;
    Ok(match report.difference_percent <= arguments.within {
        true => ExitStatus::Success,
        false => ExitStatus::Finding,
    })
}

/// The trace that was recorded with the same arguments; otherwise the only one.
fn of_this_start<'traces>(
    traces: &'traces [ResolvedTrace],
    request: &MeasureRequest,
) -> Result<&'traces ResolvedTrace> {
    let has_arguments = |trace: &&ResolvedTrace| {
        let recorded = trace.command.get(1..).unwrap_or_default().iter().map(Vec::as_slice);
        recorded.eq(request.arguments.iter().map(|argument| argument.as_encoded_bytes()))
    };
    match (traces.iter().find(has_arguments), traces) {
        (Some(trace), _) => Ok(trace),
        (None, [trace]) => Ok(trace),
        _ => Err(Error::usage("none of the traces was recorded with these arguments").with_hint(format!(
            "record this run: reorder record -o traces -- {} ARGUMENTS",
            request.old.display()
        ))),
    }
}
