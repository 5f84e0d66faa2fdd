//! Moves the blocks and rewrites the address fields that refer out of them.

use std::ops::Range;

use rayon::prelude::*;

use crate::address_map::AddressMap;
use crate::code_reference;
use crate::ledger::Ledger;
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::Result;
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::decode::x86_64::Field;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::blocks::{BlockIndex, GapContent};
use reorder_image::elf::analysis::fields::CodeFields;

/// Fills holes that the old layout did not have; running into one stops the program.
pub(super) fn filler(processor: Processor) -> u8 {
    /// `int3`.
    const BREAKPOINT: u8 = 0xcc;
    /// Four of them are `UDF #0`.
    const UNDEFINED: u8 = 0;
    if processor == Processor::Aarch64 { UNDEFINED } else { BREAKPOINT }
}

/// Writes all units at their new places, and filler between.
///
/// # Errors
/// Refuses (R12) fields that cannot reach their target.
pub(crate) fn move_code(
    analysis: &Analysis<'_>,
    map: &AddressMap,
    input: &[u8],
    output: &mut [u8],
    ledger: &mut Ledger,
) -> Result<()> {
    /// Ranges per task: enough to hide the cost of a task, few enough to balance large functions.
    const CHUNK: usize = 256;
    let mut placed = placed_ranges(analysis, map);
    let offset = |placed: &PlacedRange| analysis.code.file_offset(placed.new_start()).0 as usize;
    placed.par_sort_unstable_by_key(offset);
    let mut pieces = Vec::with_capacity(placed.len().div_ceil(CHUNK));
    let mut rest = &mut *output;
    let mut position = 0;
    for placed in placed.chunks(CHUNK) {
        let start = placed.first().map_or(position, offset);
        let end = placed.last().map_or(start, |last| offset(last) + last.size() as usize);
        let (_, after) = std::mem::take(&mut rest).split_at_mut(start - position);
        let (bytes, after) = after.split_at_mut(end - start);
        pieces.push((placed, start, bytes));
        (position, rest) = (end, after);
    }
    let written = pieces
        .into_par_iter()
        .map(|(placed, first, bytes)| {
            let mut written = Ledger::default();
            for placed in placed {
                let start = offset(placed);
                let bytes = &mut bytes[start - first..start - first + placed.size() as usize];
                let old = analysis.code.file_offset(placed.start).0 as usize;
                bytes.copy_from_slice(&input[old..old + bytes.len()]);
                let is_rewritten = rewrite_fields(analysis, map, placed, bytes)?;
                if is_rewritten || placed.delta != 0 {
                    written.record(start..start + bytes.len());
                }
            }
            Ok(written)
        })
        .collect::<Result<Vec<_>>>()?;
    written.into_iter().for_each(|written| ledger.append(written));
    fill_holes(analysis, placed, output, ledger);
    Ok(())
}

/// Bytes that move by one distance.
pub(super) struct PlacedRange {
    pub(super) arena: u32,
    pub(super) start: Address,
    end: Address,
    delta: u64,
    blocks: Range<u32>,
}

impl PlacedRange {
    pub(super) fn new_start(&self) -> Address {
        self.start.plus(self.delta)
    }

    /// The new address of what was at `target`.
    fn new_target(&self, map: &AddressMap, target: Address) -> NewAddress {
        let moves_along = self.start <= target && target < self.end;
        if moves_along { NewAddress(target.0.wrapping_add(self.delta)) } else { map.map(target) }
    }

    pub(super) fn size(&self) -> u64 {
        self.end.distance_from(self.start)
    }
}

/// Every unit, whole where its blocks move together. On the way back to an earlier layout two units may look glued that
/// never were; their blocks are then placed one by one.
pub(super) fn placed_ranges(analysis: &Analysis<'_>, map: &AddressMap) -> Vec<PlacedRange> {
    let delta = |address: Address| map.map(address).0.wrapping_sub(address.0);
    // On the way back, the analysis of the moved image may see a unit that surrounds the place another function left.
    let blocks = analysis.partition.blocks.iter().zip(0_u32..);
    let mut starts: Vec<(u64, u32)> = blocks.map(|(block, index)| (map.map(block.start).0, index)).collect();
    starts.sort_unstable();
    let is_entered = |start: Address, end: Address, own: &Range<u32>| {
        let first = starts.partition_point(|&(address, _)| address < start.0);
        let inside = starts[first..].iter().take_while(|&&(address, _)| address < end.0);
        inside.into_iter().any(|(_, index)| !own.contains(index))
    };
    let mut placed = Vec::with_capacity(analysis.units.len());
    for unit in &analysis.units {
        let blocks = unit.blocks.clone().map(|index| &analysis.partition.blocks[index as usize]);
        let is_whole = blocks.clone().all(|block| delta(block.start) == delta(unit.start));
        if is_whole
            && !is_entered(unit.start.plus(delta(unit.start)), unit.end.plus(delta(unit.start)), &unit.blocks)
        {
            placed.push(PlacedRange {
                arena: unit.arena,
                start: unit.start,
                end: unit.end,
                delta: delta(unit.start),
                blocks: unit.blocks.clone(),
            });
            continue;
        }
        for (index, block) in unit.blocks.clone().zip(blocks) {
            placed.push(PlacedRange {
                arena: unit.arena,
                start: block.start,
                end: block.end,
                delta: delta(block.start),
                blocks: index..index + 1,
            });
        }
    }
    placed
}

/// Rewrites all fields of `placed`, whose new bytes are `bytes`; true when any differs.
fn rewrite_fields(
    analysis: &Analysis<'_>,
    map: &AddressMap,
    placed: &PlacedRange,
    bytes: &mut [u8],
) -> Result<bool> {
    let mut is_changed = false;
    match &analysis.fields {
        CodeFields::X86_64(fields) => {
            for field in fields.of(placed.blocks.clone()) {
                is_changed |= rewrite_field(analysis, map, placed, field, bytes)?;
            }
        }
        CodeFields::Aarch64(references) => {
            for block in placed.blocks.clone() {
                let start = analysis.partition.block(BlockIndex(block)).first_function;
                for reference in references.of_atom(block as usize, start) {
                    let place = NewAddress(reference.place.0.wrapping_add(placed.delta));
                    let target = placed.new_target(map, reference.target);
                    if place.0 != reference.place.0 || target.0 != reference.target.0 {
                        let offset = reference.place.distance_from(placed.start) as usize;
                        code_reference::rewrite(bytes, offset, &reference, place, target)
                            .ok_or_else(|| code_reference::out_of_reach(&reference, target))?;
                        is_changed = true;
                    }
                }
            }
        }
    }
    Ok(is_changed)
}

/// Stores the field's new distance; true when it differs.
fn rewrite_field(
    analysis: &Analysis<'_>,
    map: &AddressMap,
    placed: &PlacedRange,
    field: &Field,
    bytes: &mut [u8],
) -> std::result::Result<bool, Refusal> {
    let target = field.target(&analysis.code);
    let target_delta = placed.new_target(map, target).0.wrapping_sub(target.0);
    if target_delta == placed.delta {
        return Ok(false);
    }
    let place = analysis.code.address(field.place);
    let offset = place.distance_from(placed.start) as usize;
    let stored = &mut bytes[offset..offset + field.width()];
    let unreachable = || {
        Refusal::new(
            RefusalCode::OutOfReach,
            "an address field cannot reach its target after the move",
            "report this image: its short branches should have kept their functions together",
        )
        .at(place)
    };
    let Ok(old) = <[u8; 4]>::try_from(&*stored) else { return Err(unreachable()) };
    let change = target_delta.wrapping_sub(placed.delta) as i64;
    let new =
        i64::from(i32::from_le_bytes(old)).checked_add(change).and_then(|value| i32::try_from(value).ok());
    stored.copy_from_slice(&new.ok_or_else(unreachable)?.to_le_bytes());
    Ok(true)
}

/// Fills the free bytes that no unit took. A hole that was there before, with the same bounds, keeps its bytes.
fn fill_holes(analysis: &Analysis<'_>, mut placed: Vec<PlacedRange>, output: &mut [u8], ledger: &mut Ledger) {
    placed.par_sort_unstable_by_key(|placed| (placed.new_start(), placed.size()));
    let mut fill = |start: Address, end: Address| {
        let was_hole = analysis.partition.gap_containing(start).is_some_and(|gap| {
            let gap = &analysis.partition.gaps[gap];
            gap.start == start && gap.end == end && gap.content == GapContent::Padding
        });
        if start < end && !was_hole {
            let offset = analysis.code.file_offset(start).0 as usize;
            let range = offset..offset + end.distance_from(start) as usize;
            output[range.clone()].fill(filler(analysis.code.processor));
            ledger.record(range);
        }
    };
    let taken = placed.iter().map(|placed| (placed.new_start(), placed.new_start().plus(placed.size())));
    let mut taken = taken.peekable();
    let mut position = Address(0);
    for interval in &analysis.free {
        // On the way back, a unit may reach from one interval across what the analysis pinned into the next.
        position = position.max(interval.start);
        while let Some((start, end)) = taken.next_if(|(start, _)| *start < interval.end) {
            fill(position, start.min(interval.end));
            position = position.max(end);
        }
        fill(position, interval.end);
    }
}
