//! One image in, one proven image out: analysis → plan → relocation → verification, in memory.
//!
//! Guarantee: what is returned has passed `verify`, and applying its map to it gives back the input.

pub mod clones;
pub mod macho;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::address_map::{AddressMap, Move};
use crate::debug::rebuild::tail_start;
use crate::debug::{DebugPolicy, has_debug};
use crate::layout_map::{LayoutMap, Side, digest, hexadecimal};
use crate::plan::{Plan, plan, plan_from_map};
use crate::static_relocations::compact_tables;
use crate::{RelocateOptions, relocate};
use reorder_base::address::{Address, FileOffset};
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::analysis::Analysis;
use reorder_image::analysis::pins::{Pin, PinReason};
use reorder_image::analysis::units::unit_containing;
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_system::memory::give_back;
use reorder_verify::{VerifyOptions, VerifyReport, verify};

/// Where the functions shall go.
#[derive(Clone, Copy, Debug)]
pub enum Arrangement<'request> {
    /// These first, in this order; the rest behind, as it is.
    Order(&'request [FunctionIndex]),
    /// The same; recorded starts need the first so many of them.
    Needed(&'request [FunctionIndex], usize),
    /// Exactly where a map says, forwards or back.
    Map(&'request LayoutMap),
}

/// The result of [`apply`].
#[derive(Clone, Debug)]
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
    /// What the output lost or has to get again, such as a signature.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
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

/// Relocates the functions of `file`, then proves the result. The analysis is taken, since it takes as much memory as the
/// proof, which starts when nothing needs it any longer.
///
/// # Errors
/// Refusals (R1…R16), malformed input, a map of another image.
pub fn apply(
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    mut analysis: Analysis<'_>,
    arrangement: Arrangement<'_>,
    options: RelocateOptions,
) -> Result<Applied> {
    if let Arrangement::Map(map) = arrangement
        && map.is_one_way
        && map.side_of(file.bytes)? == Side::New
    {
        return Err(Error::usage("the map does not lead back: the debug information was written again")
            .with_hint("keep the input, or write the output and its map with --debug keep-stale"));
    }
    let (plan, side) = match arrangement {
        Arrangement::Order(order) => (plan(&analysis, functions, order, order.len())?, None),
        Arrangement::Needed(order, needed) => (plan(&analysis, functions, order, needed)?, None),
        Arrangement::Map(map) => {
            let side = map.side_of(file.bytes)?;
            (plan_from_map(&mut analysis, map.address_map(side)?)?, Some((map, side)))
        }
    };
    let mut summary = summarise(functions, &analysis, &plan);
    let mut bytes = {
        let _phase = tracing::info_span!("relocate").entered();
        give_back();
        relocate(file, functions, analysis, &plan.map, options)?
    };
    if let Some((map, Side::New)) = side {
        restore_rest(map, &mut bytes);
    }
    // The way back needs no other proof than the digest of the image that it must lead to.
    if !matches!(side, Some((_, Side::New))) {
        let _phase = tracing::info_span!("verify").entered();
        give_back();
        prove(file.bytes, &bytes)?;
    }
    if let Some((map, side)) = side {
        let expected = if side == Side::New { &map.old_digest } else { &map.new_digest };
        if digest(&bytes) != *expected {
            return Err(Error::usage("the map does not lead to the image that it describes")
                .with_hint("use the same options as when the map was written (--debug, --keep-build-id)"));
        }
    }
    if !plan.map.is_identity() {
        summary.warnings.extend(compact_tables(file).map(|section| {
            format!(
                "{} was emptied: relocations in the compact form need more room after a move",
                section.display_name()
            )
        }));
    }
    Ok(Applied { bytes, map: plan.map, summary })
}

/// The output must pass the independent verifier, or it never leaves the memory.
fn prove(old: &[u8], new: &[u8]) -> Result<()> {
    let options = VerifyOptions { keeps_alignment: true, ..VerifyOptions::default() };
    judge(verify(old, new, options), RefusalCode::R16)
}

/// A report as a refusal, unless it proves the output.
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

/// What moved, and why the rest did not.
pub fn summarise(functions: &FunctionTable<'_>, analysis: &Analysis<'_>, plan: &Plan) -> ApplySummary {
    let without_room = without_room(functions, analysis, plan);
    let room_pin = |index: FunctionIndex| {
        let at = without_room.binary_search_by_key(&index, |(function, _)| *function).ok()?;
        Some(without_room[at].1)
    };
    summary_of(functions, &plan.map, |index, address| (analysis.pin_at(address), room_pin(index)))
}

/// The summary of an image, given for each function what pins it and what kept it from being placed.
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

/// Functions, ascending, that nothing pins but for which `plan` found no free place.
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

/// A map that must repeat more than one in so many bytes of the input is not worth having.
const MAX_REST_SHARE: usize = 4;
/// Unless that is so little, as the padding between two pages of code.
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
    let build_ids = |old: &ElfFile<'_>, new: &ElfFile<'_>| {
        Some((hexadecimal(old.build_id()?), hexadecimal(new.build_id()?)))
    };
    let moved = ElfFile::parse(&applied.bytes)?;
    let moved_functions = FunctionTable::collect(&moved)?;
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
    };
    map.names = map.moves.iter().map(|range| name_of(functions, range)).collect();
    let back = plan_from_map(&mut moved_analysis, map.address_map(Side::New)?)?;
    // Debug information that was written again is not restored, nor what stands among it.
    let end = if map.is_one_way { tail_start(input) } else { u64::MAX };
    let options = match map.is_one_way {
        true => RelocateOptions { debug: DebugPolicy::KeepStale, ..options },
        false => options,
    };
    let restored = relocate(&moved, &moved_functions, moved_analysis, &back.map, options)?;
    map.fills = differences(input.bytes, &restored);
    map.fills.retain(|(offset, _)| offset.0 < end);
    let rest = map.stored_bytes();
    let is_whole = restored.len() == input.bytes.len();
    if rest > input.bytes.len() / MAX_REST_SHARE && !(is_whole && rest <= SMALL_REST) {
        return Err(Error::usage("the input cannot be restored from the output, so no map was written")
            .with_hint("leave out --map, or --debug drop, which forgets parts of the input"));
    }
    Ok(map)
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

/// Bytes that moving alone does not bring back.
fn restore_rest(map: &LayoutMap, bytes: &mut [u8]) {
    for (offset, fill) in &map.fills {
        let start = usize::try_from(offset.0).unwrap_or(usize::MAX);
        let place = start.checked_add(fill.len()).and_then(|end| bytes.get_mut(start..end));
        if let Some(place) = place {
            place.copy_from_slice(fill);
        }
    }
}
