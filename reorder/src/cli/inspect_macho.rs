//! `reorder inspect` for Mach-O files: image by image.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::pins::pins_text;
use crate::cli::refusal;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_base::hexadecimal;
use reorder_base::refusal::Refusal;
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::universal::{Slice, choose_among, slices};
use reorder_relocate::apply::ApplySummary;
use reorder_relocate::apply::macho::summarise;
use reorder_report::table::{Table, grouped};
use reorder_report::{Report, Width};

/// What the analysis of each image found.
#[derive(Serialize)]
pub(crate) struct MachOInspectReport {
    image: String,
    /// Whether one of the images can be moved.
    pub is_movable: bool,
    images: Vec<ImageReport>,
    #[serde(skip)]
    shown: usize,
}

#[derive(Serialize)]
struct ImageReport {
    architecture: &'static str,
    #[serde(serialize_with = "refusal::serialize")]
    refusal: Option<Refusal>,
    uuid: Option<String>,
    #[serde(flatten)]
    facts: Option<Facts>,
}

#[derive(Serialize)]
struct Facts {
    text_bytes: u64,
    movable_bytes: u64,
    units: usize,
    glued_units: usize,
    code_references: usize,
    data_references: usize,
    jump_table_words: usize,
    unreferenced_functions: usize,
    pins_by_reason: BTreeMap<String, usize>,
    #[serde(flatten)]
    summary: ApplySummary,
}

impl Report for MachOInspectReport {
    const COMMAND: &'static str = "inspect";

    fn text(&self, width: Width) -> String {
        let mut text = String::new();
        for image in &self.images {
            let name = match self.images.len() {
                1 => self.image.clone(),
                _ => format!("{} ({})", self.image, image.architecture),
            };
            if let Some(facts) = &image.facts {
                _ = writeln!(text, "{}", facts.text(self.shown, width));
            }
            match &image.refusal {
                None => _ = writeln!(text, "{name}: can be moved"),
                Some(refusal) => _ = writeln!(text, "{name}: {refusal}\n  cure: {}", refusal::cure(refusal)),
            }
        }
        text
    }
}

impl Facts {
    fn text(&self, shown: usize, width: Width) -> String {
        let percent = |part: u64| format!("{:.2} %", part as f64 * 100.0 / self.text_bytes.max(1) as f64);
        let summary = &self.summary;
        let mut table = Table::new(["", "count", "of text"]);
        let mut row = |name: &str, count: usize, share: String| {
            table.row([name.to_owned(), grouped(count as u64), share])
        };
        row("functions", summary.functions, percent(self.text_bytes));
        row("  movable", summary.functions_movable, percent(self.movable_bytes));
        row("  pinned", summary.pinned.len(), percent(self.text_bytes - self.movable_bytes));
        row("units", self.units, String::new());
        row("  of several functions", self.glued_units, String::new());
        row("references in code", self.code_references, String::new());
        row("references in data", self.data_references, String::new());
        row("words of jump tables", self.jump_table_words, String::new());
        row("functions without a reference", self.unreferenced_functions, String::new());
        let mut text = table.render(width);
        if !summary.pinned.is_empty() {
            text.push_str(&format!("\n{}", pins_text(&summary.pinned, shown, width)));
        }
        text
    }
}

/// Analyses the images of `bytes`, or the one for `architecture`; the text report lists at most `shown` pins.
///
/// # Errors
/// When the file cannot be read; refusals are in the report.
pub(crate) fn inspect(
    path: String,
    bytes: &[u8],
    architecture: Option<&str>,
    shown: usize,
) -> Result<MachOInspectReport> {
    let mut images = Vec::new();
    let all = slices(bytes)?;
    let wanted = |slice: &&Slice| architecture.is_none_or(|wanted| slice.architecture == Some(wanted));
    if !all.iter().any(|slice| wanted(&slice)) {
        // The error says which images there are.
        choose_among(&all, architecture)?;
    }
    for slice in all.iter().filter(wanted) {
        let mut report = ImageReport {
            architecture: slice.architecture.unwrap_or("unknown"),
            refusal: None,
            uuid: None,
            facts: None,
        };
        match inspect_image(&bytes[slice.range.clone()], &mut report) {
            Err(Error { kind: ErrorKind::Refused(refusal), .. }) => report.refusal = Some(*refusal),
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        images.push(report);
    }
    let is_movable = images.iter().any(|image| image.refusal.is_none());
    Ok(MachOInspectReport { image: path, is_movable, images, shown })
}

fn inspect_image(bytes: &[u8], report: &mut ImageReport) -> Result<()> {
    let file = MachOFile::parse(bytes)?;
    report.uuid = file.uuid.as_ref().map(|uuid| hexadecimal::encode(uuid));
    let analysis = MachOAnalysis::new(&file)?;
    let names = file.code_names()?;
    let summary = summarise(&names.functions_within(file.text().range()), &analysis);
    let mut pins_by_reason = BTreeMap::new();
    for pinned in &summary.pinned {
        *pins_by_reason.entry(pinned.reason.to_string()).or_insert(0) += 1;
    }
    let movable = analysis.units.iter().filter(|unit| unit.pin.is_none());
    report.facts = Some(Facts {
        text_bytes: file.text().size,
        movable_bytes: movable.map(|unit| unit.size()).sum(),
        units: analysis.units.len(),
        glued_units: analysis.atoms.len() - analysis.units.len(),
        code_references: analysis.code.count() + analysis.fixed_code.len(),
        data_references: analysis.data.len(),
        jump_table_words: analysis.table_words,
        unreferenced_functions: analysis.unreferenced,
        pins_by_reason,
        summary,
    });
    Ok(())
}
