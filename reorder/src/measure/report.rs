//! The measured figures as a report, with everything that limits them.

use std::path::PathBuf;

use serde::Serialize;

use super::staging::Programs;
use super::statistics::{Comparison, Sample};
use super::{MeasureRequest, Series};
use crate::report::Report;
use crate::report::table::{Table, grouped};

/// Real starts of two programs, compared.
#[derive(Clone, Debug, Serialize)]
pub struct MeasureReport {
    /// The program as it was.
    pub old: PathBuf,
    /// The program with the new layout.
    pub new: PathBuf,
    /// Arguments of both.
    pub arguments: Vec<String>,
    /// How every run of both ended.
    pub status: String,
    /// Rounds; every figure is over this many runs of each program.
    pub rounds: usize,
    /// Whether the page cache of the program's file was empty before each run.
    pub cold: bool,
    /// Whether fresh copies were run instead of the files themselves.
    pub private_copies: bool,
    /// Size of the executable segments of the new program.
    pub text_bytes: u64,
    /// What the kernel reads at once from the device, where it says so.
    pub read_ahead_bytes: Option<u64>,
    /// The figures.
    pub figures: Figures,
    /// What could not be done, and what weakens the figures.
    pub limits: Vec<String>,
}

/// Each figure of both programs; absent where it could not be taken.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// 4 KiB text pages that a start executes or reads.
    pub text_pages_touched: Option<Comparison>,
    /// 4 KiB text pages in the page cache after an ordinary start: touched or read along.
    pub text_pages_cached: Option<Comparison>,
    /// 4 KiB text pages in the page table at the end of an ordinary start.
    pub text_pages_mapped: Option<Comparison>,
    /// Page faults that waited for the disk, of the whole process.
    pub major_faults: Option<Comparison>,
    /// Page faults that did not, of the whole process.
    pub minor_faults: Option<Comparison>,
    /// From start to end.
    pub wall_milliseconds: Option<Comparison>,
}

/// Draws the conclusions from both series.
pub(super) fn conclude(
    request: &MeasureRequest,
    programs: &Programs,
    old: &Series,
    new: &Series,
) -> MeasureReport {
    let figures = Figures {
        text_pages_touched: Comparison::of(&old.text_pages_touched, &new.text_pages_touched),
        text_pages_cached: Comparison::of(&old.text_pages_cached, &new.text_pages_cached),
        text_pages_mapped: Comparison::of(&old.text_pages_mapped, &new.text_pages_mapped),
        major_faults: Comparison::of(&old.major_faults, &new.major_faults),
        minor_faults: Comparison::of(&old.minor_faults, &new.minor_faults),
        wall_milliseconds: Comparison::of(&old.wall_milliseconds, &new.wall_milliseconds),
    };
    let mut report = MeasureReport {
        old: request.old.clone(),
        new: request.new.clone(),
        arguments: request.arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        status: programs.status().to_owned(),
        rounds: request.rounds,
        cold: programs.cold(),
        private_copies: programs.copied(),
        text_bytes: programs.file(1).text_bytes(),
        read_ahead_bytes: programs.file(1).read_ahead().map(|(bytes, _)| bytes),
        figures,
        limits: Vec::new(),
    };
    report.limits = limits(request, programs, &report);
    report
}

fn limits(request: &MeasureRequest, programs: &Programs, report: &MeasureReport) -> Vec<String> {
    let mut limits = Vec::new();
    if !request.warm && !report.cold {
        limits.push(
            "these starts are warm: the page cache of the files cannot be emptied, not even for copies beside the \
             new program (is that a file system in memory?)"
                .to_owned(),
        );
    } else if report.cold && !report.private_copies {
        limits.push(
            "the files were run where they are, because copies end differently or stay cached: their places on the \
             disk may differ, so compare pages rather than times"
                .to_owned(),
        );
    }
    if report.figures.text_pages_mapped.is_none() {
        limits.push("mapped text pages are unknown: the program could not be traced (ptrace)".to_owned());
    }
    if let (true, Some((read_ahead, setting))) = (report.cold, programs.file(1).read_ahead())
        && read_ahead >= report.text_bytes
    {
        limits.push(format!(
            "one read from this disk brings in up to {} KiB and the whole text has {} KiB, so major faults and cached \
             pages hardly differ; with `echo 128 > {}` (as root) they would",
            grouped(read_ahead / 1024),
            grouped(report.text_bytes / 1024),
            setting.display()
        ));
    }
    limits
}

impl Report for MeasureReport {
    const COMMAND: &'static str = "measure";

    fn text(&self) -> String {
        let kind = if self.cold { "cold" } else { "warm" };
        let mut table = Table::new([
            format!("{} {kind} starts each", self.rounds),
            "old".to_owned(),
            "new".to_owned(),
            "change".to_owned(),
            "old range".to_owned(),
            "new range".to_owned(),
        ]);
        let figures = &self.figures;
        for (name, figure, digits) in [
            ("text pages touched", figures.text_pages_touched, 0),
            ("text pages cached", figures.text_pages_cached, 0),
            ("text pages mapped", figures.text_pages_mapped, 0),
            ("major faults", figures.major_faults, 0),
            ("minor faults", figures.minor_faults, 0),
            ("wall time, ms", figures.wall_milliseconds, 2),
        ] {
            match figure {
                Some(figure) => table.row(row(name, &figure, digits)),
                None => table.row([name, "-", "-", "-"]),
            }
        }
        let mut text = table.render();
        for limit in &self.limits {
            text.push_str("note: ");
            text.push_str(limit);
            text.push('\n');
        }
        text
    }
}

fn row(name: &str, figure: &Comparison, digits: usize) -> [String; 6] {
    let number = |value: f64| format!("{value:.digits$}");
    let range = |sample: &Sample| format!("{}..{}", number(sample.minimum), number(sample.maximum));
    [
        name.to_owned(),
        number(figure.old.median),
        number(figure.new.median),
        figure.shown_change(),
        range(&figure.old),
        range(&figure.new),
    ]
}
