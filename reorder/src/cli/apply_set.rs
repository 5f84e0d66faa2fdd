//! `reorder apply --set`: a program with the libraries that it loads at startup.

use std::path::Path;

use serde::Serialize;

use crate::cli::applied::status_of;
use crate::cli::apply_elf::ElfRequest;
use crate::cli::check_args::CheckArguments;
use crate::cli::context::Context;
use crate::cli::kept_inputs::KeptFiles;
use crate::cli::moved_set::MovedSet;
use crate::cli::trades;
use crate::exit_status::ExitStatus;
use reorder_base::error::{Error, Result};
use reorder_image::macho::is_macho;
use reorder_layout::Traded;
use reorder_relocate::apply::ApplySummary;
use reorder_report::table::{Table, counted, grouped};
use reorder_report::{Report, Width};
use reorder_run::check::CheckedRun;
use reorder_system::interruption::Interruption;
use reorder_system::mapped::map_image;

#[derive(Serialize)]
struct SetImage {
    image: String,
    /// Where the moved image is; `None` for those that were left out.
    output: Option<String>,
    /// Why it was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    #[serde(flatten)]
    summary: Option<ApplySummary>,
    /// What was traded for size.
    #[serde(flatten)]
    traded: Traded,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Serialize)]
struct SetReport {
    directory: String,
    /// The command line that runs the program with the moved libraries.
    start: String,
    /// The runs in which the program behaved alike without and with the set.
    checks: Vec<CheckedRun>,
    images: Vec<SetImage>,
}

impl Report for SetReport {
    const COMMAND: &'static str = "apply_set";

    fn text(&self, width: Width) -> String {
        let mut table = Table::new(["image", "functions", "moved", "pinned", "output"]).with_texts([4]);
        for image in &self.images {
            let count = |number: Option<usize>| {
                number.map_or_else(|| "-".to_owned(), |number| grouped(number as u64))
            };
            let summary = image.summary.as_ref();
            table.row([
                image.image.clone(),
                count(summary.map(|summary| summary.functions)),
                count(summary.map(|summary| summary.functions_moved)),
                count(summary.map(|summary| summary.pinned.len())),
                match (&image.output, &image.left_out) {
                    (Some(output), _) => output.clone(),
                    (None, reason) => format!("left out: {}", reason.as_deref().unwrap_or_default()),
                },
            ]);
        }
        let moved = self.images.iter().filter(|image| image.output.is_some()).count();
        let traded: String = self
            .images
            .iter()
            .flat_map(|image| {
                trades::choices(&image.traded).map(move |choice| format!("{}: {choice}\n", image.image))
            })
            .collect();
        let checks: String = self.checks.iter().map(CheckedRun::text).collect();
        format!(
            "{}\n{traded}{checks}{moved} of {} moved and verified, and the loader finds them; run the program with:\n  {}\n",
            table.render(width),
            counted(self.images.len() as u64, "image"),
            self.start
        )
    }
}

/// Moves the functions of the program and of each loaded library that has traces; writes all files or none.
///
/// # Errors
/// As for the program alone; a directory that holds one of the inputs.
pub(super) fn run(
    program: &Path,
    directory: &Path,
    request: &ElfRequest<'_>,
    check: &CheckArguments,
    context: &Context,
) -> Result<ExitStatus> {
    let kept = request.arrangement.files()?;
    let kept = kept.iter().fold(KeptFiles::default(), |kept, (what, files)| kept.reads(what, files));
    let kept = kept.reads("the input of checked runs", check.input());
    let mapped = map_image(program)?;
    if is_macho(&mapped) {
        return Err(Error::usage("--set applies only to ELF programs")
            .in_file(program)
            .with_hint("leave out --set"));
    }
    check.refuse_unless_runnable(program, &mapped)?;
    let set = MovedSet::make((program, mapped), directory, request, context)?;
    // Dropped after the files: a signal that ended this process earlier would leave them beside their destinations.
    let _interruption = Interruption::note();
    let checks = match check.is_asked_for() {
        true => check.run(program, &set.trial()?, context)?,
        false => Vec::new(),
    };
    set.write(kept)?.iter().for_each(|warning| context.talk.warning(&warning.to_string(), None));
    let lacks = set.moved.iter().flat_map(|image| &image.applied.warnings);
    lacks.for_each(|warning| context.talk.warning(warning, None));
    let moved = set.moved.iter().map(|image| SetImage {
        image: image.path.display().to_string(),
        output: Some(image.output.display().to_string()),
        left_out: None,
        summary: Some(image.applied.summary.clone()),
        traded: image.applied.traded.clone(),
        warnings: image.applied.warnings.clone(),
    });
    let left = set.left.iter().map(|image| SetImage {
        image: image.path.display().to_string(),
        output: None,
        left_out: Some(image.reason.clone()),
        summary: None,
        traded: Traded::default(),
        warnings: Vec::new(),
    });
    context.print(&SetReport {
        directory: directory.display().to_string(),
        start: set.start()?,
        checks,
        images: moved.chain(left).collect(),
    })?;
    Ok(status_of(&set.rejected))
}
