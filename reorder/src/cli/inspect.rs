//! `reorder inspect`: whether the functions of an image can be moved, and which would stay.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::context::Context;
use crate::cli::inspect_macho;
use crate::cli::pins::{HEAVIEST, pins_text};
use crate::cli::refusal;
use crate::exit_status::ExitStatus;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_base::hexadecimal;
use reorder_base::refusal::Refusal;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::kept_relocations::KeptRelocationSummary;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::macho::is_macho;
use reorder_layout::opened::refuse_architecture;
use reorder_relocate::address_map::AddressMap;
use reorder_relocate::apply::ApplySummary;
use reorder_relocate::apply::clones::{CopyableFunctions, copyable};
use reorder_relocate::apply::elf::summarise;
use reorder_relocate::debug::sections::check;
use reorder_relocate::elf::plan::Plan;
use reorder_report::table::{Table, grouped};
use reorder_report::{Report, Width};
use reorder_system::mapped::map_image;

const EXAMPLES: &str = "\
Examples:
  reorder inspect /usr/bin/git
  reorder inspect libLLVM.so --format json
  reorder inspect MyApp --arch arm64

Exit status: 0 it can be moved, 2 it is refused, as by `reorder apply` (the reason is printed), or could not be read.";

/// Show whether the functions of an image can be moved, which of them would stay, and why
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct InspectArguments {
    /// The program, shared object, dylib or bundle: ELF or Mach-O, for x86-64 or AArch64
    image: PathBuf,
    /// List all pinned functions instead of only the largest
    #[arg(long)]
    all: bool,
    /// Inspect only this architecture of a universal Mach-O file: arm64, x86_64
    #[arg(long = "arch", value_name = "NAME")]
    architecture: Option<String>,
}

/// What the analysis found.
#[derive(Serialize)]
struct InspectReport {
    image: String,
    is_movable: bool,
    #[serde(serialize_with = "refusal::serialize")]
    refusal: Option<Refusal>,
    build_id: Option<String>,
    #[serde(flatten)]
    facts: Option<Facts>,
    #[serde(skip)]
    shown: usize,
}

#[derive(Serialize)]
struct Facts {
    text_bytes: u64,
    function_bytes: u64,
    padding_bytes: u64,
    unclaimed_bytes: u64,
    units: usize,
    glued_units: usize,
    jump_tables: usize,
    code_pointers: usize,
    kept_relocations: Option<KeptRelocationSummary>,
    pins_by_reason: BTreeMap<String, usize>,
    /// What `apply --layout blocks` could copy; absent where copies are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<CopyableFunctions>,
    #[serde(flatten)]
    summary: ApplySummary,
}

impl Report for InspectReport {
    const COMMAND: &'static str = "inspect";

    fn text(&self, width: Width) -> String {
        let verdict = match &self.refusal {
            None => format!("{}: can be moved\n", self.image),
            Some(refusal) => format!("{}: {refusal}\n  cure: {}\n", self.image, refusal::cure(refusal)),
        };
        let Some(facts) = &self.facts else { return verdict };
        let percent = |part: u64| format!("{:.2} %", part as f64 * 100.0 / facts.text_bytes.max(1) as f64);
        let mut table = Table::new(["", "count", "of text"]);
        let summary = &facts.summary;
        table.row(["functions".to_owned(), grouped(summary.functions as u64), percent(facts.function_bytes)]);
        table.row(["  movable".to_owned(), grouped(summary.functions_movable as u64), String::new()]);
        table.row(["  pinned".to_owned(), grouped(summary.pinned.len() as u64), String::new()]);
        if let Some(copies) = &facts.copies {
            table.row(["  that can be copied".to_owned(), grouped(copies.functions as u64), String::new()]);
        }
        table.row(["units".to_owned(), grouped(facts.units as u64), String::new()]);
        table.row(["  of several functions".to_owned(), grouped(facts.glued_units as u64), String::new()]);
        table.row([
            "bytes of padding".to_owned(),
            grouped(facts.padding_bytes),
            percent(facts.padding_bytes),
        ]);
        table.row([
            "bytes outside functions".to_owned(),
            grouped(facts.unclaimed_bytes),
            percent(facts.unclaimed_bytes),
        ]);
        table.row(["jump tables".to_owned(), grouped(facts.jump_tables as u64), String::new()]);
        table.row(["code pointers in data".to_owned(), grouped(facts.code_pointers as u64), String::new()]);
        if let Some(kept) = &facts.kept_relocations {
            table.row(["kept relocations".to_owned(), grouped(kept.evaluated), String::new()]);
            table.row(["  that contradict the code".to_owned(), grouped(kept.disagreeing), String::new()]);
        }
        let mut text = table.render(width);
        if facts.kept_relocations.is_some_and(|kept| kept.is_ignored) {
            text.push_str(
                "The kept relocations are damaged or contradict the code too often: they were ignored.\n",
            );
        }
        for (obstacle, count) in facts.copies.iter().flat_map(|copies| &copies.obstacles) {
            text.push_str(&format!("{} cannot be copied: {obstacle}\n", grouped(*count as u64)));
        }
        if !summary.pinned.is_empty() {
            text.push_str(&format!("\n{}", pins_text(&summary.pinned, self.shown, width)));
        }
        text.push_str(&format!("\n{verdict}"));
        text
    }
}

/// Analyses the image and reports.
///
/// # Errors
/// When the image cannot be read; a refusal has its report, and the status that `apply` ends with.
pub fn run(arguments: &InspectArguments, context: &Context) -> Result<ExitStatus> {
    let bytes = map_image(&arguments.image)?;
    let shown = if arguments.all { usize::MAX } else { HEAVIEST };
    if is_macho(&bytes) {
        let path = arguments.image.display().to_string();
        let report = inspect_macho::inspect(path, &bytes, arguments.architecture.as_deref(), shown)
            .map_err(|error| error.in_file(&arguments.image))?;
        context.print(&report)?;
        return Ok(if report.is_movable { ExitStatus::Success } else { ExitStatus::Error });
    }
    refuse_architecture(arguments.architecture.as_deref())
        .map_err(|error| error.in_file(&arguments.image))?;
    let mut report = InspectReport {
        image: arguments.image.display().to_string(),
        is_movable: true,
        refusal: None,
        build_id: None,
        facts: None,
        shown,
    };
    match inspect(&bytes, &mut report) {
        Err(Error { kind: ErrorKind::Refused(refusal), .. }) => {
            report.is_movable = false;
            report.refusal = Some(*refusal);
        }
        Err(error) => return Err(error.in_file(&arguments.image)),
        Ok(()) => {}
    }
    context.print(&report)?;
    Ok(if report.is_movable { ExitStatus::Success } else { ExitStatus::Error })
}

fn inspect(bytes: &[u8], report: &mut InspectReport) -> Result<()> {
    let file = ElfFile::parse(bytes)?;
    report.build_id = file.build_id().map(hexadecimal::encode);
    let functions = ElfFunctions::collect(&file)?;
    let analysis = Analysis::new(&file, &functions)?;
    let summary = summarise(
        &functions.table,
        &analysis,
        &Plan { map: AddressMap::default(), without_room: Vec::new() },
    );
    // Images that functions move in and copies are refused in are no finding.
    let copies = copyable(&file, &functions, &analysis).ok();
    report.facts = Some(facts(&analysis, summary, copies));
    check(&file)?;
    Ok(())
}

fn facts(analysis: &Analysis<'_>, summary: ApplySummary, copies: Option<CopyableFunctions>) -> Facts {
    let text_bytes = analysis.code.arenas.iter().map(|arena| arena.end.distance_from(arena.start)).sum();
    let function_bytes = analysis.partition.blocks.iter().map(|block| block.size()).sum();
    let padding_bytes = analysis.partition.padding_bytes();
    let mut pins_by_reason = BTreeMap::new();
    for pinned in &summary.pinned {
        *pins_by_reason.entry(pinned.reason.to_string()).or_insert(0) += 1;
    }
    Facts {
        text_bytes,
        function_bytes,
        padding_bytes,
        unclaimed_bytes: text_bytes - function_bytes - padding_bytes,
        units: analysis.units.len(),
        glued_units: analysis.units.iter().filter(|unit| unit.blocks.len() > 1).count(),
        jump_tables: analysis.tables.len(),
        code_pointers: analysis.pointers.len(),
        kept_relocations: analysis.kept_relocations,
        pins_by_reason,
        copies,
        summary,
    }
}
