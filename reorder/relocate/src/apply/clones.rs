//! Copies of functions that should come first and did not move, added to an image whose other functions are placed.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Applied;
use super::elf::prove;
use crate::elf::clones::{Obstacle, clone_functions};
use crate::warning::Warning;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_image::elf::analysis::{Analysis, Coverage};
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CloneSummary {
    /// Functions that have a copy.
    pub functions: usize,
    /// Bytes of all copies.
    pub bytes: u64,
    /// Functions that should come first, did not move, and have no copy.
    pub skipped: Vec<SkippedFunction>,
}

/// A function without a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedFunction {
    /// First name, or its address.
    pub name: String,
    /// Where it is.
    pub address: Address,
    /// The obstacle.
    pub obstacle: Obstacle,
    /// The place that shows it.
    pub evidence: Address,
}

/// Copies those of `wanted`, in that order, that had to stay, then proves the result. `has_moved`: the image went through
/// [`super::apply`], so functions that are not pinned are in place.
///
/// # Errors
/// Refusals (R8, R12, R13, R16), malformed tables.
pub fn with_clones(applied: Applied, wanted: &[Address], has_moved: bool) -> Result<Applied> {
    let Applied { bytes: moved, map, mut summary } = applied;
    let file = ElfFile::parse(&moved)?;
    let functions = FunctionTable::collect(&file)?;
    let analysis = Analysis::with_coverage(&file, &functions, Coverage::Any)?;
    let stayed: BTreeSet<Address> = summary.pinned.iter().map(|function| function.address).collect();
    let is_wanted = |address: &&Address| !has_moved || stayed.contains(address);
    let wanted: Vec<FunctionIndex> =
        wanted.iter().filter(is_wanted).filter_map(|address| functions.starting_at(*address)).collect();
    let cloned = {
        let _phase = tracing::info_span!("clone").entered();
        clone_functions(&file, &functions, &analysis, &wanted)?
    };
    let name = |address: Address| match functions.starting_at(address) {
        Some(index) => functions.display_name(index),
        None => address.to_string(),
    };
    let skipped = cloned.skipped.iter().map(|&(address, obstacle, evidence)| SkippedFunction {
        name: name(address),
        address,
        obstacle,
        evidence,
    });
    let is_unchanged = cloned.copies.is_empty();
    summary.clones = Some(CloneSummary {
        functions: cloned.copies.len(),
        bytes: if is_unchanged { 0 } else { cloned.copied_bytes },
        skipped: skipped.collect(),
    });
    summary.warnings.extend(cloned.lost.map(Warning::ProgramHeaderTaken));
    if !is_unchanged {
        let _phase = tracing::info_span!("verify").entered();
        prove(&moved, &cloned.bytes)?;
    }
    Ok(Applied { bytes: cloned.bytes, map, summary })
}
