//! One Mach-O image in, one proven and signed image out.
//!
//! Guarantee: what is returned has passed `verify`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{Applied, ApplySummary, Arrangement, differences, judge, restore_rest, summary_of};
use crate::address_map::{AddressMap, Move};
use crate::layout_map::{Copied, LayoutMap, Side, digest};
use crate::macho::finish::finish;
use crate::macho::move_code_and_data;
use crate::macho::plan::{Plan, UnitIndex, plan, unit_order};
use crate::macho::unwind::{unwind_room, unwind_size};
use crate::warning::Warning;
use reorder_base::address::{Address, FileOffset, NewAddress};
use reorder_base::error::{Error, Result};
use reorder_base::hexadecimal::encode;
use reorder_base::hint::{Hint, MapHint, OrderFileAlternative};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::load_command::LinkEditRange;
use reorder_image::pins::{Pin, PinReason};
use reorder_verify::{self, VerifyOptions, verify_moves};

/// What the user decides.
#[derive(Clone, Copy, Debug)]
pub struct MachOOptions {
    /// More than this share of what should come first, in percent of its bytes, must not be pinned.
    pub most_pinned_percent: u8,
    /// Continue although many functions stay because of unknown records of Swift.
    pub allow_swift_pins: bool,
}

impl Default for MachOOptions {
    fn default() -> Self {
        Self { most_pinned_percent: 25, allow_swift_pins: false }
    }
}

/// Relocates the functions of `file`, signs and proves the result.
///
/// # Errors
/// Refusals (M14, M18, M19, M20, R12), a map of another image.
pub fn apply(
    file: &MachOFile<'_>,
    functions: &FunctionTable<'_>,
    analysis: &MachOAnalysis,
    arrangement: Arrangement<'_>,
    options: MachOOptions,
) -> Result<Applied> {
    let cut;
    let analysis = match arrangement {
        Arrangement::Map(map) => {
            cut = analysis_for(file, &map.address_map(map.side_of(file.bytes)?)?)?;
            &cut
        }
        _ => analysis,
    };
    let (plan, side) = match arrangement {
        Arrangement::Order(order) => {
            (plan_order(file, functions, analysis, order, order.len(), options)?, None)
        }
        Arrangement::Needed(order, needed) => {
            (plan_order(file, functions, analysis, order, needed, options)?, None)
        }
        Arrangement::Map(map) => {
            let side = map.side_of(file.bytes)?;
            let plan = plan_from_map(analysis, map.address_map(side)?)?;
            (Planned { plan, warnings: Vec::new() }, Some((map, side)))
        }
    };
    let Planned { plan, mut warnings } = plan;
    let mut bytes = match plan.map.is_identity() {
        // The image is unchanged, so signing it again would only lose the signature.
        true => file.bytes.to_vec(),
        false => {
            let _phase = tracing::info_span!("relocate").entered();
            let moved = move_code_and_data(file, analysis, &plan.map)?;
            let finished = finish(file, &plan.map, moved)?;
            warnings.extend(finished.warnings);
            finished.bytes
        }
    };
    if let Some((map, side)) = side {
        if side == Side::New {
            bytes = placed(&map.copies, &bytes, old_size(map, bytes.len())?);
            restore_rest(map, &mut bytes);
        }
        let expected = if side == Side::New { &map.old_digest } else { &map.new_digest };
        if digest(&bytes) != *expected {
            return Err(Error::usage("the map does not lead to the image that it describes")
                .with_hint(Hint::Map(MapHint::OfThisVersion)));
        }
    }
    // On the way back, the digest of the original is proof enough.
    if !matches!(side, Some((_, Side::New))) {
        let _phase = tracing::info_span!("verify").entered();
        let claims: Vec<_> = plan.map.moves().iter().map(claim).collect();
        judge(
            verify_moves(file.bytes, &bytes, &claims, VerifyOptions::default()),
            RefusalCode::MachOFailedVerification,
        )?;
    }
    let room_pins = RoomPins::of(analysis, &plan);
    let mut summary =
        summary_of(functions, &plan.map, |_, address| (analysis.pin_at(address), room_pins.at(address)));
    summary.warnings = warnings;
    Ok(Applied { bytes, map: plan.map, summary })
}

/// Units that stay because no free place fits them, by start, with their ends.
struct RoomPins(BTreeMap<Address, Address>);

impl RoomPins {
    fn of(analysis: &MachOAnalysis, plan: &Plan) -> Self {
        let units = plan.without_room.iter().map(|index| &analysis.units[index.0 as usize]);
        Self(units.map(|unit| (unit.start, unit.end)).collect())
    }

    fn at(&self, address: Address) -> Option<Pin> {
        let (start, end) = self.0.range(..=address).next_back()?;
        (address < *end).then_some(Pin { reason: PinReason::NoRoom, evidence: *start })
    }
}

/// Functions, ascending, that are not pinned but for which `plan` found no free place.
#[must_use]
pub fn without_room(
    functions: &FunctionTable<'_>,
    analysis: &MachOAnalysis,
    plan: &Plan,
) -> Vec<(FunctionIndex, Pin)> {
    let pins = RoomPins::of(analysis, plan);
    functions.iter().filter_map(|(index, function)| Some((index, pins.at(function.start)?))).collect()
}

/// A claim that the verifier gets and checks.
fn claim(range: &Move) -> reorder_verify::Move {
    reorder_verify::Move { old_start: range.old, new_start: range.new, size: range.size }
}

/// Bytes of the image that the map leads back to.
fn old_size(map: &LayoutMap, new_size: usize) -> Result<usize> {
    let filled: u64 = map.fills.iter().map(|(_, bytes)| bytes.len() as u64).sum();
    let old = map.old_bytes.unwrap_or(new_size as u64);
    // Input beyond the output's size is listed as fills, or a table grew by less than its own size.
    match old <= (new_size as u64).saturating_mul(2).saturating_add(filled) {
        true => Ok(old as usize),
        false => Err(Error::usage(format!("the map claims that the input had {old} bytes"))
            .with_hint(Hint::Map(MapHint::Unchanged))),
    }
}

/// What could move, and why the rest cannot.
#[must_use]
pub fn summarise(functions: &FunctionTable<'_>, analysis: &MachOAnalysis) -> ApplySummary {
    summary_of(functions, &AddressMap::default(), |_, address| (analysis.pin_at(address), None))
}

struct Planned {
    plan: Plan,
    warnings: Vec<Warning>,
}

/// Shares of the cold functions, from the end, that are grouped by their unwind encoding; the smallest that fits is used.
const GATHERED: [(usize, usize); 6] = [(0, 1), (1, 16), (1, 8), (1, 4), (1, 2), (1, 1)];

/// Numbers of leading units to try: all, then those that startup needs; if these are all, ever fewer.
fn fronts(front: usize, needed: usize) -> Vec<usize> {
    if needed < front {
        return vec![front, needed];
    }
    std::iter::successors(Some(front), |kept| Some(kept / 2).filter(|kept| *kept > 0)).collect()
}

/// Functions in `order` first. Compact unwind information joins neighbours that unwind alike, so an order may need more
/// room than there is: then cold functions are grouped by how they unwind, and at last the least needed leading units
/// become cold.
fn plan_order(
    file: &MachOFile<'_>,
    functions: &FunctionTable<'_>,
    analysis: &MachOAnalysis,
    order: &[FunctionIndex],
    needed: usize,
    options: MachOOptions,
) -> Result<Planned> {
    let (wanted, front) = unit_order(analysis, functions, order);
    let (_, needed) = unit_order(analysis, functions, order.get(..needed).unwrap_or(order));
    check_pins(analysis, &wanted[..front], options)?;
    let room = analysis.unwind.as_ref().map_or(u64::MAX, |info| unwind_room(file, info));
    let mut least = u64::MAX;
    for kept in fronts(front, needed) {
        for (part, whole) in GATHERED {
            let mut tried = wanted.clone();
            if kept < front {
                tried[kept..].sort_unstable();
            }
            let cold = tried.len() - kept;
            let from = tried.len() - cold / whole * part;
            gather(analysis, &mut tried[from..]);
            let plan = plan(analysis, &tried, kept)?;
            let size = match &analysis.unwind {
                Some(info) => unwind_size(info, &plan.map)?,
                None => 0,
            };
            if size <= room {
                let warning = || Warning::FewerPlacedFirst { placed: kept, wanted: front };
                let warnings = (kept < front).then(warning).into_iter().collect();
                return Ok(Planned { plan, warnings });
            }
            least = least.min(size);
        }
    }
    Err(Refusal::new(
        RefusalCode::MachOUnwindRoom,
        format!("the unwind information would need {least} bytes and has {room}"),
        Hint::OrderFile { otherwise: OrderFileAlternative::FewerFirst },
    )
    .into())
}

/// Sorts units by how they unwind, keeping their order otherwise: entries that cannot be joined come last.
fn gather(analysis: &MachOAnalysis, units: &mut [UnitIndex]) {
    let Some(unwind) = &analysis.unwind else { return };
    units.sort_by_cached_key(|index| {
        let start = analysis.units[index.0 as usize].start;
        let encoding = unwind.encoding_at(start);
        let is_single = unwind.is_bound_to_start(encoding) || unwind.exception_table_at(start).is_some();
        (is_single, if is_single { 0 } else { encoding })
    });
}

/// Refuses an image in which too much of what should come first is pinned: the move would gain little.
fn check_pins(analysis: &MachOAnalysis, front: &[UnitIndex], options: MachOOptions) -> Result<()> {
    let units = || front.iter().map(|index| &analysis.units[index.0 as usize]);
    let bytes: u64 = units().map(|unit| unit.size()).sum();
    let pinned_by = |is_counted: &dyn Fn(Pin) -> bool| -> u64 {
        units().filter(|unit| unit.pin.is_some_and(is_counted)).map(|unit| unit.size()).sum()
    };
    let percent = |part: u64| u128::from(part) * 100 / u128::from(bytes.max(1));
    let swift = percent(pinned_by(&|pin| pin.reason == PinReason::SwiftRecord));
    if swift > u128::from(options.most_pinned_percent) && !options.allow_swift_pins {
        return Err(Refusal::new(
            RefusalCode::MachOSwiftRecords,
            format!(
                "records of Swift of an unknown kind keep {swift} % of what should come first in its place"
            ),
            Hint::OrderFile { otherwise: OrderFileAlternative::AcceptSwiftPins },
        )
        .into());
    }
    let all = percent(pinned_by(&|_| true));
    if all > u128::from(options.most_pinned_percent) && !options.allow_swift_pins {
        return Err(Refusal::new(
            RefusalCode::MachOPinnedStart,
            format!("{all} % of what should come first has to stay where it is"),
            Hint::AcceptPins,
        )
        .into());
    }
    Ok(())
}

/// The analysis in which each range of `map` is cut out.
fn analysis_for(file: &MachOFile<'_>, map: &AddressMap) -> Result<MachOAnalysis> {
    let ends = |range: &Move| [range.old, range.old.plus(range.size)];
    let cuts: Vec<Address> = map.moves().iter().flat_map(ends).collect();
    MachOAnalysis::with_cuts(file, &cuts)
}

/// Uses a given map as the plan if its ranges are disjoint and inside `__text`.
fn plan_from_map(analysis: &MachOAnalysis, map: AddressMap) -> Result<Plan> {
    let wrong = |message: String| Error::usage(message).with_hint(Hint::Map(MapHint::OfImage));
    // A moved image may have fewer cuts: unwind entries that became neighbours can have been joined.
    let text = analysis.atoms.starts.first().copied().unwrap_or(analysis.atoms.end)..analysis.atoms.end;
    let ends = map.moves().iter().flat_map(|range| [range.old, range.old.plus(range.size)]);
    let mut cuts: Vec<Address> = ends.filter(|cut| text.contains(cut)).collect();
    cuts.extend(&analysis.atoms.starts);
    cuts.push(text.end);
    cuts.sort_unstable();
    cuts.dedup();
    let mut placed: Vec<(u64, u64)> =
        cuts.windows(2).map(|pair| (map.map(pair[0]).0, pair[1].distance_from(pair[0]))).collect();
    placed.sort_unstable();
    let first = analysis.atoms.starts.first().map_or(0, |start| start.0);
    let mut cursor = first;
    for (start, size) in placed {
        if start != cursor {
            return Err(wrong(format!("the map leaves a gap or an overlap at {}", NewAddress(start))));
        }
        cursor += size;
    }
    Ok(Plan { map, without_room: Vec::new() })
}

/// The result of moving back, brought to the input's size, with displaced parts in their places.
fn placed(copies: &[Copied], restored: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = restored.to_vec();
    bytes.resize(size, 0);
    for copied in copies {
        let part = |offset: u64| {
            Some(usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(copied.size)?).ok()?)
        };
        let source = part(copied.from.0).and_then(|range| restored.get(range));
        if let (Some(source), Some(place)) =
            (source, part(copied.to.0).and_then(|range| bytes.get_mut(range)))
        {
            place.copy_from_slice(source);
        }
    }
    bytes
}

/// The parts of `__LINKEDIT` that moving back leaves elsewhere: rewritten tables may differ in size from the linker's, and
/// move all that follows.
fn moved_parts(input: &MachOFile<'_>, restored: &MachOFile<'_>) -> Vec<Copied> {
    let part = |range: &LinkEditRange| {
        let other = restored.link_edit_range(range.part)?;
        let is_moved = other.size == range.size && other.offset != range.offset;
        let (from, to) = (FileOffset(other.offset as u64), FileOffset(range.offset as u64));
        is_moved.then_some(Copied { from, to, size: range.size as u64 })
    };
    input.link_edit.iter().filter_map(part).collect()
}

/// The map between `input` and its relocated form. It leads back: it holds the bytes that moving back does not restore.
///
/// # Errors
/// When functions of the relocated form cannot be moved back.
pub fn layout_map(
    input: &MachOFile<'_>,
    functions: &FunctionTable<'_>,
    applied: &Applied,
) -> Result<LayoutMap> {
    let moved = MachOFile::parse(&applied.bytes)?;
    let uuids = |old: Option<[u8; 16]>, new: Option<[u8; 16]>| Some((encode(&old?), encode(&new?)));
    let mut map = LayoutMap {
        old_digest: digest(input.bytes),
        new_digest: digest(&applied.bytes),
        old_bytes: Some(input.bytes.len() as u64),
        build_ids: uuids(input.uuid, moved.uuid),
        moves: applied.map.moves().to_vec(),
        names: Vec::new(),
        copies: Vec::new(),
        fills: Vec::new(),
        is_one_way: false,
        has_sorted_unwind_entries: false,
    };
    map.names = map.moves.iter().map(|range: &Move| super::name_of(functions, range)).collect();
    let back = map.address_map(Side::New)?;
    let analysis = analysis_for(&moved, &back)?;
    let back = plan_from_map(&analysis, back)?;
    let mut restored = move_code_and_data(&moved, &analysis, &back.map)?;
    if !back.map.is_identity() {
        restored = finish(&moved, &back.map, restored)?.bytes;
    }
    map.copies = moved_parts(input, &MachOFile::parse(&restored)?);
    map.fills = differences(input.bytes, &placed(&map.copies, &restored, input.bytes.len()));
    Ok(map)
}
