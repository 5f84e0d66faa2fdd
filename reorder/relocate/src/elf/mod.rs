//! Order → new addresses → patched bytes, for one ELF image.
//!
//! In: image, analysis, wanted order. Out: the new image's bytes and the address map. `verify` decides whether the result
//! is right.

pub mod aarch64;
pub mod absolute;
pub mod alignment;
pub mod busy_pages;
pub mod code;
pub mod copies;
pub mod data;
pub mod erratum;
pub mod identity;
mod kept_sums;
pub mod names;
pub mod plan;
pub mod sframe;
pub(crate) mod static_relocations;
pub mod unwind;
mod unwind_order;

use std::ops::Range;

use rayon::prelude::*;

use crate::address_map::AddressMap;
use crate::debug::DebugPolicy;
use crate::debug::pieces::Pieces;
use crate::ledger::Ledger;
use crate::{RelocateOptions, debug};
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::analysis::blocks::GapContent;
use reorder_image::elf::analysis::{Analysis, KeptAnalysis};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_system::memory::trim_heap;

/// Writes the image that `map` describes. Consumes the analysis, so that parts are freed while the output grows.
///
/// # Errors
/// Refusals R8, R9, R10, R12; malformed tables.
pub fn relocate(
    file: &ElfFile<'_>,
    functions: &ElfFunctions<'_>,
    analysis: Analysis<'_>,
    map: &AddressMap,
    options: RelocateOptions,
) -> Result<Vec<u8>> {
    let mut output = vec![0; file.bytes.len()];
    let mut ledger = Ledger::default();
    let code = code_bytes(&analysis);
    code.iter().for_each(|range| copy(&file.bytes[range.clone()], &mut output[range.clone()]));
    code::move_code(&analysis, map, file.bytes, &mut output, &mut ledger)?;
    // Only moving code needs the units and the fields: their memory makes room for what is copied now.
    let analysis = &analysis.into_kept();
    trim_heap();
    copy_rest(&code, file.bytes, &mut output);
    absolute::move_absolute_fields(file, analysis, map, &mut output, &mut ledger);
    data::move_data(file, functions, analysis, map, &mut output, &mut ledger);
    unwind::move_unwind_entries(file, &functions.frame_entries, map, &mut output, &mut ledger)?;
    if options.sort_unwind_entries && !map.is_identity() {
        unwind_order::sort_unwind_entries(file, &mut output, &mut ledger);
    }
    sframe::move_sframe(file, functions, map, &mut output, &mut ledger)?;
    // After all code and data, whose new contents decide the addends.
    static_relocations::move_static_relocations(file, analysis, map, &mut output, &mut ledger)?;
    identity::change_identity(file, functions, map, options.keep_build_id, &mut output, &mut ledger);
    debug::apply_policy(file, options.debug, &mut output, &mut ledger);
    if let Some(position) = ledger.first_unlisted_difference(file.bytes, &output) {
        let refusal = Refusal::new(
            RefusalCode::FailedVerification,
            format!("an unlisted write at file offset {position:#x}"),
            "report this image; the input was left untouched",
        );
        return Err(Error::from(refusal));
    }
    if options.debug == DebugPolicy::Update && debug::has_debug(file) && !map.is_identity() {
        let _phase = tracing::info_span!("debug information").entered();
        let edits = debug::update(file, pieces(analysis, map))?;
        return debug::rebuild::rebuild(file, &output, edits);
    }
    Ok(output)
}

/// File ranges of code that may move, in order.
fn code_bytes(analysis: &KeptAnalysis<'_>) -> Vec<Range<usize>> {
    let arenas = analysis.code.arenas.iter().map(|arena| {
        let start = analysis.code.file_offset(arena.start).0 as usize;
        start..start + arena.end.distance_from(arena.start) as usize
    });
    let mut ranges: Vec<_> = arenas.collect();
    ranges.sort_unstable_by_key(|range| range.start);
    ranges
}

/// Copies everything but `code`, whose ranges are in order.
fn copy_rest(code: &[Range<usize>], input: &[u8], output: &mut [u8]) {
    let mut position = 0;
    let end = std::iter::once(input.len()..input.len());
    for range in code.iter().cloned().chain(end) {
        let rest = position.min(range.start)..range.start;
        copy(&input[rest.clone()], &mut output[rest]);
        position = position.max(range.end);
    }
}

/// On all cores: most of the time is spent on the first touch of the pages of `to`, which is as long as `from`.
fn copy(from: &[u8], to: &mut [u8]) {
    const CHUNK: usize = 1 << 20;
    to.par_chunks_mut(CHUNK).zip(from.par_chunks(CHUNK)).for_each(|(to, from)| to.copy_from_slice(from));
}

/// The parts of the old address space that stay together.
fn pieces(analysis: &KeptAnalysis<'_>, map: &AddressMap) -> Pieces {
    let mut code: Vec<_> = analysis.code.arenas.iter().map(|arena| arena.start..arena.end).collect();
    code.sort_unstable_by_key(|range| range.start);
    let gaps = analysis.partition.gaps.iter().filter(|gap| gap.content == GapContent::Padding);
    let padding: Vec<_> = gaps.map(|gap| gap.start..gap.end).collect();
    Pieces::new(map, code, &padding)
}
