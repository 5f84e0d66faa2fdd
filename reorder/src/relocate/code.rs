//! Moves the blocks and rewrites the address fields that leave them.

use rayon::prelude::*;

use crate::address::Address;
use crate::image::analysis::Analysis;
use crate::image::analysis::blocks::GapContent;
use crate::image::analysis::units::Unit;
use crate::image::decode::x86_64::Field;
use crate::image::refusal::{Refusal, RefusalCode};
use crate::relocate::address_map::AddressMap;
use crate::relocate::ledger::Ledger;

/// Fills holes that the old layout did not have; running into one stops the program.
const FILLER: u8 = 0xcc;

/// Writes all units at their new places, and filler between.
///
/// # Errors
/// Refuses (R12) fields that cannot reach their target.
pub fn move_code(
    analysis: &Analysis<'_>,
    map: &AddressMap,
    input: &[u8],
    output: &mut [u8],
    ledger: &mut Ledger,
) -> Result<(), Refusal> {
    let mut placed: Vec<PlacedUnit<'_>> = analysis
        .units
        .iter()
        .filter(|unit| unit.is_trusted)
        .map(|unit| PlacedUnit { unit, delta: map.map(unit.start).0.wrapping_sub(unit.start.0) })
        .collect();
    placed.sort_by_key(|placed| analysis.code.file_offset(placed.new_start()));
    let mut targets = Vec::with_capacity(placed.len());
    let mut rest = &mut *output;
    let mut position = 0;
    for placed in placed {
        let start = analysis.code.file_offset(placed.new_start()).0 as usize;
        let (_, after) = std::mem::take(&mut rest).split_at_mut(start - position);
        let (bytes, after) = after.split_at_mut(placed.unit.size() as usize);
        position = start + bytes.len();
        rest = after;
        targets.push((placed, start, bytes));
    }
    let written = targets
        .into_par_iter()
        .with_min_len(64)
        .map(|(placed, start, bytes)| {
            let old = analysis.code.file_offset(placed.unit.start).0 as usize;
            bytes.copy_from_slice(&input[old..old + bytes.len()]);
            let mut is_changed = placed.delta != 0;
            for field in analysis.fields(placed.unit) {
                is_changed |= rewrite_field(analysis, map, &placed, field, bytes)?;
            }
            Ok(is_changed.then(|| start..start + bytes.len()))
        })
        .collect::<Result<Vec<_>, Refusal>>()?;
    written.into_iter().flatten().for_each(|range| ledger.record(range));
    fill_holes(analysis, map, output, ledger);
    Ok(())
}

struct PlacedUnit<'analysis> {
    unit: &'analysis Unit,
    delta: u64,
}

impl PlacedUnit<'_> {
    fn new_start(&self) -> Address {
        self.unit.start.plus(self.delta)
    }
}

/// Stores the field's new distance; true when it differs.
fn rewrite_field(
    analysis: &Analysis<'_>,
    map: &AddressMap,
    placed: &PlacedUnit<'_>,
    field: &Field,
    bytes: &mut [u8],
) -> Result<bool, Refusal> {
    let target = field.target(&analysis.code);
    let unit = placed.unit;
    let moves_along = unit.start <= target && target < unit.end;
    let target_delta =
        if moves_along { placed.delta } else { map.map(target).0.wrapping_sub(target.0) };
    if target_delta == placed.delta {
        return Ok(false);
    }
    let place = analysis.code.address(field.place);
    let offset = place.distance_from(unit.start) as usize;
    let stored = &mut bytes[offset..offset + field.width()];
    let unreachable = || {
        Refusal::new(
            RefusalCode::R12,
            "an address field cannot reach its target after the move",
            "report this image: its short branches should have kept their functions together",
        )
        .at(place)
    };
    let Ok(old) = <[u8; 4]>::try_from(&*stored) else { return Err(unreachable()) };
    let change = target_delta.wrapping_sub(placed.delta) as i64;
    let new = i64::from(i32::from_le_bytes(old)).checked_add(change).and_then(|value| i32::try_from(value).ok());
    stored.copy_from_slice(&new.ok_or_else(unreachable)?.to_le_bytes());
    Ok(true)
}

/// Fills the free bytes that no unit took. A hole that was there before, with the same bounds, keeps its bytes.
fn fill_holes(analysis: &Analysis<'_>, map: &AddressMap, output: &mut [u8], ledger: &mut Ledger) {
    let mut ranges: Vec<(u64, u64)> = analysis
        .units
        .iter()
        .filter(|unit| unit.pin.is_none())
        .map(|unit| (map.map(unit.start).0, unit.size()))
        .collect();
    ranges.sort_unstable();
    let mut ranges = ranges.into_iter().peekable();
    let mut fill = |start: u64, end: u64| {
        let (start, end) = (Address(start), Address(end));
        let was_hole = analysis.partition.gap_containing(start).is_some_and(|gap| {
            let gap = &analysis.partition.gaps[gap];
            gap.start == start && gap.end == end && gap.content == GapContent::Padding
        });
        if start < end && !was_hole {
            let offset = analysis.code.file_offset(start).0 as usize;
            let range = offset..offset + end.distance_from(start) as usize;
            output[range.clone()].fill(FILLER);
            ledger.record(range);
        }
    };
    for interval in &analysis.free {
        let mut position = interval.start.0;
        while let Some((start, size)) = ranges.next_if(|(start, _)| *start < interval.end.0) {
            fill(position, start);
            position = start + size;
        }
        fill(position, interval.end.0);
    }
}
