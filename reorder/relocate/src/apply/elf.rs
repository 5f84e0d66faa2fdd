//! One ELF image in, one proven image out.

use std::collections::BTreeSet;

use crate::warning::Warning;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::hexadecimal::encode;
use reorder_base::hint::Hint;
use reorder_base::refusal::RefusalCode;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::units::unit_containing;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::pins::{Pin, PinReason};
use reorder_system::memory::trim_heap;
use reorder_verify::{VerifyOptions, verify};

use super::{Applied, ApplySummary, Arrangement, differences, judge, name_of, restore_rest, summary_of};
use crate::RelocateOptions;
use crate::debug::rebuild::tail_start;
use crate::debug::{DebugPolicy, has_debug};
use crate::elf::plan::{Plan, plan, plan_from_map};
use crate::elf::relocate;
use crate::elf::static_relocations::compact_tables;
use crate::layout_map::{LayoutMap, Side, digest};

/// Relocates the functions of `file`, then proves the result. Consumes the analysis, which takes as much memory as the
/// proof and is freed before it.
///
/// # Errors
/// Refusals (R1…R16), malformed input, a map of another image.
pub fn apply(
    file: &ElfFile<'_>,
    functions: &ElfFunctions<'_>,
    mut analysis: Analysis<'_>,
    arrangement: Arrangement<'_>,
    options: RelocateOptions,
) -> Result<Applied> {
    if let Arrangement::Map(map) = arrangement
        && map.is_one_way
        && map.side_of(file.bytes)? == Side::New
    {
        return Err(Error::usage("the map does not lead back: the debug information was written again")
            .with_hint(Hint::KeepWayBack));
    }
    let (plan, side) = match arrangement {
        Arrangement::Order(order) => (plan(&analysis, functions, order, order.len())?, None),
        Arrangement::Needed(order, needed) => (plan(&analysis, functions, order, needed)?, None),
        Arrangement::Map(map) => {
            let side = map.side_of(file.bytes)?;
            (plan_from_map(&mut analysis, map.address_map(side)?)?, Some((map, side)))
        }
    };
    let options = match side {
        None => options,
        Some((map, side)) => {
            let sort_unwind_entries = side == Side::Old && map.has_sorted_unwind_entries;
            RelocateOptions { sort_unwind_entries, ..options }
        }
    };
    let mut summary = summarise(&functions.table, &analysis, &plan);
    let mut bytes = {
        let _phase = tracing::info_span!("relocate").entered();
        trim_heap();
        relocate(file, functions, analysis, &plan.map, options)?
    };
    if let Some((map, Side::New)) = side {
        restore_rest(map, &mut bytes);
    }
    // On the way back, the digest of the original is proof enough.
    if !matches!(side, Some((_, Side::New))) {
        let _phase = tracing::info_span!("verify").entered();
        trim_heap();
        prove(file.bytes, &bytes)?;
    }
    if let Some((map, side)) = side {
        let expected = if side == Side::New { &map.old_digest } else { &map.new_digest };
        if digest(&bytes) != *expected {
            return Err(Error::usage("the map does not lead to the image that it describes")
                .with_hint(Hint::OptionsOfMap));
        }
    }
    if !plan.map.is_identity() {
        summary.warnings.extend(compact_tables(file).map(|section| Warning::CompactRelocationsEmptied {
            section: section.display_name().to_string(),
        }));
    }
    Ok(Applied { bytes, map: plan.map, summary })
}

/// Accepts the image `new` only if the independent verifier proves that it is `old` with moved functions.
///
/// # Errors
/// R16 with the first difference.
pub fn prove(old: &[u8], new: &[u8]) -> Result<()> {
    let options = VerifyOptions { keeps_alignment: true, ..VerifyOptions::default() };
    judge(verify(old, new, options), RefusalCode::FailedVerification)
}

/// What moved, and why the rest did not.
pub fn summarise(functions: &FunctionTable<'_>, analysis: &Analysis<'_>, plan: &Plan) -> ApplySummary {
    let without_room = without_room(functions, analysis, plan);
    let room_pin = |index: FunctionIndex| {
        let at = without_room.binary_search_by_key(&index, |(function, _)| *function).ok()?;
        Some(without_room[at].1)
    };
    summary_of(functions, &plan.map, |index, address| (analysis.pin_at(address), room_pin(index)))
}

/// Functions, ascending, that are not pinned but for which `plan` found no free place.
#[must_use]
pub fn without_room(
    functions: &FunctionTable<'_>,
    analysis: &Analysis<'_>,
    plan: &Plan,
) -> Vec<(FunctionIndex, Pin)> {
    let units: BTreeSet<u32> = plan.without_room.iter().map(|unit| unit.0).collect();
    let pin = |start: Address| {
        let unit = unit_containing(&analysis.units, start).filter(|unit| units.contains(&unit.0))?;
        let pin = Pin { reason: PinReason::NoRoom, evidence: analysis.units[unit.0 as usize].start };
        analysis.pin_at(start).is_none().then_some(pin)
    };
    functions.iter().filter_map(|(index, function)| Some((index, pin(function.start)?))).collect()
}

/// A map that would repeat more than one in this many bytes of the input is refused.
const MAX_REST_SHARE: usize = 4;
/// Unless it is this little, such as the padding between two pages of code.
const SMALL_REST: usize = 1 << 14;

/// The map between `input` and its relocated form, proven to lead back.
///
/// # Errors
/// When the way back does not reproduce the input, such as after debug information was dropped.
pub fn layout_map(
    input: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    applied: &Applied,
    options: RelocateOptions,
) -> Result<LayoutMap> {
    let build_ids =
        |old: &ElfFile<'_>, new: &ElfFile<'_>| Some((encode(old.build_id()?), encode(new.build_id()?)));
    let moved = ElfFile::parse(&applied.bytes)?;
    let moved_functions = ElfFunctions::collect(&moved)?;
    let mut moved_analysis = Analysis::new(&moved, &moved_functions)?;
    let mut map = LayoutMap {
        old_digest: digest(input.bytes),
        new_digest: digest(&applied.bytes),
        old_bytes: None,
        build_ids: build_ids(input, &moved),
        moves: applied.map.moves().to_vec(),
        names: Vec::new(),
        copies: Vec::new(),
        fills: Vec::new(),
        is_one_way: options.debug == DebugPolicy::Update && has_debug(input) && !applied.map.is_identity(),
        has_sorted_unwind_entries: options.sort_unwind_entries,
    };
    map.names = map.moves.iter().map(|range| name_of(functions, range)).collect();
    let back = plan_from_map(&mut moved_analysis, map.address_map(Side::New)?)?;
    // Rewritten debug information is not restored, nor the bytes between its sections.
    let end = if map.is_one_way { tail_start(input) } else { u64::MAX };
    let debug = if map.is_one_way { DebugPolicy::KeepStale } else { options.debug };
    // The old order of unwind entries is restored as bytes.
    let options = RelocateOptions { debug, sort_unwind_entries: false, ..options };
    let restored = relocate(&moved, &moved_functions, moved_analysis, &back.map, options)?;
    map.fills = differences(input.bytes, &restored);
    map.fills.retain(|(offset, _)| offset.0 < end);
    let rest = map.stored_bytes();
    let is_whole = restored.len() == input.bytes.len();
    if rest > input.bytes.len() / MAX_REST_SHARE && !(is_whole && rest <= SMALL_REST) {
        return Err(Error::usage("the input cannot be restored from the output, so no map was written")
            .with_hint(Hint::LeaveOutMap));
    }
    Ok(map)
}
