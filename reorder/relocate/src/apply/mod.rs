//! One image in, one proven image out: analysis → plan → relocation → verification, in memory.
//!
//! Guarantee: what is returned has passed `verify`, and applying its map to it gives back the input.

pub mod clones;
pub mod copies_map;
pub mod earlier_copies;
pub mod elf;
pub mod macho;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::address_map::{AddressMap, Move};
use crate::layout_map::LayoutMap;
use crate::warning::Warning;
use reorder_base::address::{Address, FileOffset};
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::pins::{Pin, PinReason};
use reorder_verify::VerifyReport;

/// Where the functions go.
#[derive(Clone, Copy, Debug)]
pub enum Arrangement<'request> {
    /// These first, in this order; then the rest in its old order.
    Order(&'request [FunctionIndex]),
    /// The same; recorded runs need this many of the first ones.
    Needed(&'request [FunctionIndex], usize),
    /// Exactly where a map says, forwards or back.
    Map(&'request LayoutMap),
}

/// The result of [`elf::apply`] and [`macho::apply`].
#[derive(Clone, Debug, Default)]
pub struct Applied {
    /// The new image.
    pub bytes: Vec<u8>,
    /// Where everything went.
    pub map: AddressMap,
    /// Figures and pins.
    pub summary: ApplySummary,
}

/// What moved and what did not.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ApplySummary {
    /// Functions of the image.
    pub functions: usize,
    /// Functions at a new address.
    pub functions_moved: usize,
    /// Functions that could have moved.
    pub functions_movable: usize,
    /// Functions that had to stay, with the obligation that failed.
    pub pinned: Vec<PinnedFunction>,
    /// What was copied, where copies were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clones: Option<clones::CloneSummary>,
    /// What the output lost or needs again, such as a signature.
    #[serde(skip)]
    pub warnings: Vec<Warning>,
}

/// A function that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PinnedFunction {
    /// First name, or its address.
    pub name: String,
    /// Where it is.
    pub address: Address,
    /// Its size.
    pub size_bytes: u64,
    /// The obligation that failed.
    pub reason: PinReason,
    /// The place that shows it.
    pub evidence: Address,
}

impl Applied {
    /// The image as it is.
    #[must_use]
    pub fn unmoved(file: &ElfFile<'_>, functions: &FunctionTable<'_>) -> Self {
        let summary = ApplySummary { functions: functions.len(), ..ApplySummary::default() };
        Self { bytes: file.bytes.to_vec(), map: AddressMap::default(), summary }
    }
}

/// Turns a report into a refusal unless it proves the output.
fn judge(report: Result<VerifyReport>, code: RefusalCode) -> Result<()> {
    let failed = |message: String| {
        Error::from(Refusal::new(
            code,
            format!("the result did not pass verification: {message}"),
            "nothing was written; please report this image",
        ))
    };
    let report = report.map_err(|error| failed(error.to_string()))?;
    match report.differences.first() {
        None => Ok(()),
        Some(first) => Err(failed(format!(
            "{} differences, the first at {}: expected {}, found {}",
            report.difference_count, first.place, first.expected, first.found
        ))),
    }
}

/// The summary of an image, from the pin of each function and the functions that found no place.
fn summary_of(
    functions: &FunctionTable<'_>,
    map: &AddressMap,
    pins_of: impl Fn(FunctionIndex, Address) -> (Option<Pin>, Option<Pin>),
) -> ApplySummary {
    let mut summary = ApplySummary {
        functions: functions.len(),
        functions_moved: 0,
        functions_movable: 0,
        pinned: Vec::new(),
        clones: None,
        warnings: Vec::new(),
    };
    for (index, function) in functions.iter() {
        let (pin, room) = pins_of(index, function.start);
        if map.map(function.start).0 != function.start.0 {
            summary.functions_moved += 1;
        }
        summary.functions_movable += usize::from(pin.is_none());
        if let Some(pin) = pin.or(room) {
            summary.pinned.push(PinnedFunction {
                name: functions.display_name(index),
                address: function.start,
                size_bytes: function.size(),
                reason: pin.reason,
                evidence: pin.evidence,
            });
        }
    }
    summary
}

fn name_of(functions: &FunctionTable<'_>, range: &Move) -> String {
    let name = functions.names_at(range.old).next().unwrap_or(b"-");
    String::from_utf8_lossy(name).replace(['\n', '\r'], "?")
}

/// Runs of bytes in which `restored` differs from the input.
fn differences(input: &[u8], restored: &[u8]) -> Vec<(FileOffset, Vec<u8>)> {
    let mut runs: Vec<(FileOffset, Vec<u8>)> = Vec::new();
    for (index, (byte, found)) in input.iter().zip(restored).enumerate() {
        if byte == found {
            continue;
        }
        let offset = FileOffset(index as u64);
        match runs.last_mut() {
            Some((first, bytes)) if first.plus(bytes.len() as u64) == offset => bytes.push(*byte),
            _ => runs.push((offset, vec![*byte])),
        }
    }
    runs
}

/// Bytes that moving back does not restore.
fn restore_rest(map: &LayoutMap, bytes: &mut [u8]) {
    for (offset, fill) in &map.fills {
        let start = usize::try_from(offset.0).unwrap_or(usize::MAX);
        let place = start.checked_add(fill.len()).and_then(|end| bytes.get_mut(start..end));
        if let Some(place) = place {
            place.copy_from_slice(fill);
        }
    }
}
