//! `reorder measure --agreement`: predicted and real text pages of one run.

use super::MeasureArguments;
use super::scenarios::find_program;
use crate::cli::context::Context;
use crate::exit_status::ExitStatus;
use reorder_base::error::{Error, Result};
use reorder_base::hint::{RecordedUse, RunPurpose};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::simulate::{Placement, touched_pages};
use reorder_run::measure::agreement::{Prediction, compare, real_pages};
use reorder_run::measure::{MeasureRequest, Reach};
use reorder_run::processor;
use reorder_run::runnable;
use reorder_system::PAGE_BYTES;
use reorder_trace::{ImageIdentity, ResolvedTrace, executed_blocks};
use reorder_verify::recover_moves;

/// Runs the program once and compares.
pub(super) fn run(arguments: &MeasureArguments, context: &Context) -> Result<ExitStatus> {
    let Some(program) = arguments.program.as_deref() else {
        return Err(Error::usage("no program is given")
            .with_hint("reorder measure PROGRAM -t TRACES --agreement -- ARGUMENTS"));
    };
    let path = find_program(program);
    let new = arguments.new.as_deref().map(find_program);
    // The new program runs, the trace is of the old one.
    let request = arguments.request(new.clone().unwrap_or_else(|| path.clone()), None)?;
    let running = &request.old;
    runnable::check(running, RecordedUse::Simulate)?;
    processor::check_program(running, RunPurpose::Measure)?;
    let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
    let image = ElfFile::parse(&bytes).map_err(|error| error.in_file(&path))?;
    let functions = ElfFunctions::collect(&image).map_err(|error| error.in_file(&path))?;
    let identity = ImageIdentity::of(&path, image.build_id());
    let functions =
        arguments.traces.with_learned(functions, (&path, &image)).map_err(|error| error.in_file(&path))?;
    let found = functions.found;
    let functions = functions.table;
    let traces = arguments.traces.resolve(&path, &identity, &functions, &context.talk)?;
    let trace = of_this_start(&traces.traces, &request)?;
    let executed =
        (!trace.blocks.is_empty()).then(|| executed_blocks(std::slice::from_ref(trace), &image, &functions));
    let executed = executed.as_ref().map(|executed| (executed, 0));
    let real = real_pages(&request, Reach::OnePage)?;
    let predicted =
        |placement: Option<&Placement<'_>>| touched_pages(&functions, trace, executed, placement, PAGE_BYTES);
    let report = match new {
        None => {
            let pages = predicted(None);
            let is_in_parts = executed.is_some();
            let prediction = Prediction { trace, functions: &functions, pages: &pages, is_in_parts };
            compare(&request, &image, &functions, &prediction, &real)
        }
        Some(new) => {
            let bytes = std::fs::read(&new).map_err(|error| Error::io(&new, error))?;
            let moves = recover_moves(image.bytes, &bytes).map_err(|error| error.in_file(&new))?;
            let placement = Placement::of_elf(&image, &bytes, &moves).map_err(|error| error.in_file(&new))?;
            let pages = predicted(Some(&placement));
            let prediction = Prediction { trace, functions: &functions, pages: &pages, is_in_parts: true };
            let file = ElfFile::parse(&bytes).map_err(|error| error.in_file(&new))?;
            let of_new =
                ElfFunctions::collect_with(&file, &found).map_err(|error| error.in_file(&new))?.table;
            compare(&request, &file, &of_new, &prediction, &real)
        }
    };
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
