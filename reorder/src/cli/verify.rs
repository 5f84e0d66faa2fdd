//! `reorder verify`: the proof that one image is another with its functions moved.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::context::Context;
use crate::cli::verify_wheel::verify_wheels;
use crate::exit_status::ExitStatus;
use crate::remarks;
use crate::wheel::is_archive;
use reorder_base::error::Result;
use reorder_report::table::{Table, counted, grouped};
use reorder_report::{Report, Width};
use reorder_system::mapped::map_image;
use reorder_verify::{VerifyOptions, VerifyReport, verify};

const EXAMPLES: &str = "\
Examples:
  reorder verify /usr/bin/git git.fast
  reorder verify old.so new.so --format json
  reorder verify MyApp MyApp.new                # Mach-O, universal files image by image
  reorder verify package.whl moved/package.whl  # a Python wheel: its images and the list of digests";

/// Prove that NEW is OLD with its functions moved and nothing else changed
///
/// Exit status: 0 proven; 1 not proven, or NEW is not an image; 2 a file could not be read, or OLD is not an image.
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct VerifyArguments {
    /// The image before its functions were moved
    old: PathBuf,
    /// The image after its functions were moved
    new: PathBuf,
    /// List at most this many differences; all are counted
    #[arg(long, value_name = "N", default_value_t = VerifyOptions::default().listed_differences)]
    differences: usize,
}

/// Verifies and reports.
///
/// # Errors
/// When a file cannot be read or the old one is not an image.
pub fn run(arguments: &VerifyArguments, context: &Context) -> Result<ExitStatus> {
    let (old, new) = (map_image(&arguments.old)?, map_image(&arguments.new)?);
    let options = VerifyOptions { listed_differences: arguments.differences, ..VerifyOptions::default() };
    if is_archive(&old) {
        let report = verify_wheels(&old, &new, options).map_err(|error| error.in_file(&arguments.old))?;
        old.unchanged().and_then(|()| new.unchanged())?;
        context.print(&report)?;
        return Ok(if report.is_proven() { ExitStatus::Success } else { ExitStatus::Finding });
    }
    let report = verify(&old, &new, options).map_err(|error| error.in_file(&arguments.old))?;
    old.unchanged().and_then(|()| new.unchanged())?;
    context.print(&Verification::of(&report))?;
    Ok(if report.is_proven() { ExitStatus::Success } else { ExitStatus::Finding })
}

/// What a verification found, as this command reports it.
#[derive(Serialize)]
struct Verification<'report> {
    #[serde(flatten)]
    report: &'report VerifyReport,
    remarks: Vec<String>,
}

impl<'report> Verification<'report> {
    fn of(report: &'report VerifyReport) -> Self {
        Self { report, remarks: report.remarks.iter().map(remarks::text).collect() }
    }
}

impl Report for Verification<'_> {
    const COMMAND: &'static str = "verify";

    fn text(&self, width: Width) -> String {
        let mut table = Table::new(["check", "count", ""]);
        let report = self.report;
        for summary in &report.checks {
            table.row([summary.check.title().to_owned(), grouped(summary.count), summary.unit.to_owned()]);
        }
        let mut text = if report.checks.is_empty() { String::new() } else { table.render(width) };
        for remark in &self.remarks {
            text.push_str(&format!("note: {remark}\n"));
        }
        for difference in &report.differences {
            let offset =
                difference.offset.map_or_else(String::new, |offset| format!(" (file offset {offset})"));
            text.push_str(&format!(
                "differs: {}{offset}: expected {}, found {}\n",
                difference.place, difference.expected, difference.found
            ));
        }
        let listed = report.differences.len() as u64;
        if report.difference_count > listed {
            text.push_str(&format!("and {} more\n", grouped(report.difference_count - listed)));
        }
        let (functions, moved) = (counted(report.functions, "function"), grouped(report.moved));
        text.push_str(&match report.is_proven() {
            true => format!("proven: {moved} of {functions} moved, nothing else changed\n"),
            false => format!("not proven: {}\n", counted(report.difference_count, "difference")),
        });
        text
    }
}
