//! Units: what moves as one, what stays, and the free space between.
//!
//! Takes the findings; gives units in address order, each a contiguous range, and the free intervals. Guarantees
//! that no movable unit holds bytes of a gap that is not proven padding.

use rayon::prelude::*;

use crate::elf::analysis::blocks::{Gap, GapContent, Partition};
use crate::elf::analysis::references::Finding;
use crate::elf::code::CodeSpace;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// Position in the list of units, hence in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitIndex(pub u32);

/// Blocks that keep their distances.
#[derive(Clone, Debug)]
pub struct Unit {
    /// First byte.
    pub start: Address,
    /// One past the last byte.
    pub end: Address,
    /// The blocks, as a range of indices.
    pub blocks: std::ops::Range<u32>,
    /// A new start must equal the old one modulo this power of two.
    pub modulus: u64,
    /// Aligned data inside the unit makes the modulus a necessity.
    pub keeps_alignment: bool,
    /// Position of the arena in the code space.
    pub arena: u32,
    /// Why it stays, if it does.
    pub pin: Option<Pin>,
}

impl Unit {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.end.distance_from(self.start)
    }
}

/// Free bytes of one arena: what movable units and padding occupy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeInterval {
    /// Position of the arena in the code space.
    pub arena: u32,
    /// First byte.
    pub start: Address,
    /// One past the last byte.
    pub end: Address,
}

/// What the findings say of each block and gap.
struct Combined {
    pins: Vec<Option<Pin>>,
    kept_gaps: Vec<bool>,
    /// For each block: the last block that it is glued to, or itself.
    glued_to: Vec<u32>,
}

/// Applies every finding once, in sorted order, so that the reason reported never depends on threads.
fn combine(partition: &Partition, mut findings: Vec<Finding>) -> Combined {
    findings.par_sort_unstable();
    findings.dedup();
    let count = partition.blocks.len();
    let mut is_distrusted = vec![false; count];
    let mut combined = Combined {
        pins: vec![None; count],
        kept_gaps: vec![false; partition.gaps.len()],
        glued_to: (0..count as u32).collect(),
    };
    for finding in findings {
        match finding {
            Finding::Glue(first, second) => {
                let (low, high) = (first.min(second), first.max(second));
                let glued_to = &mut combined.glued_to[low.0 as usize];
                *glued_to = (*glued_to).max(high.0);
            }
            Finding::Pin(block, pin) => {
                combined.pins[block.0 as usize].get_or_insert(pin);
            }
            Finding::Distrust(block, pin) => {
                // This is the cause; what its bytes may refer to, itself included, is pinned as a consequence.
                if !std::mem::replace(&mut is_distrusted[block.0 as usize], true) {
                    combined.pins[block.0 as usize] = Some(pin);
                }
            }
            Finding::KeepBytes(index) => combined.kept_gaps[index] = true,
            Finding::KeepGap(index) => {
                combined.kept_gaps[index] = true;
                // Control that arrives in filler runs on into what follows.
                let gap = partition.gaps[index];
                let next = (gap.content == GapContent::Padding).then(|| partition.block_containing(gap.end));
                if let Some(block) = next.flatten() {
                    let pin = Pin { reason: PinReason::GluedToGap, evidence: gap.start };
                    combined.pins[block.0 as usize].get_or_insert(pin);
                }
            }
            Finding::Related(..) => {}
        }
    }
    combined
}

/// Builds the units and the free intervals.
pub(crate) fn build_units(
    code: &CodeSpace<'_>,
    partition: &Partition,
    findings: Vec<Finding>,
) -> (Vec<Unit>, Vec<FreeInterval>) {
    let combined = combine(partition, findings);
    let mut units: Vec<Unit> = Vec::with_capacity(partition.blocks.len());
    let mut reach = 0;
    for (index, block) in partition.blocks.iter().enumerate() {
        let pin = combined.pins[index];
        if index > 0
            && reach >= index as u32
            && let Some(unit) = units.last_mut().filter(|unit| unit.arena == block.arena)
        {
            let between = between_blocks(partition, &combined, unit.end, block.start);
            unit.pin = unit.pin.or(pin).or(between);
            unit.end = block.end;
            unit.blocks.end += 1;
            unit.modulus = unit.modulus.max(block.modulus);
            unit.keeps_alignment |= block.keeps_alignment;
            reach = reach.max(combined.glued_to[index]);
            continue;
        }
        reach = combined.glued_to[index];
        units.push(Unit {
            start: block.start,
            end: block.end,
            blocks: index as u32..index as u32 + 1,
            modulus: block.modulus,
            keeps_alignment: block.keeps_alignment,
            arena: block.arena,
            pin,
        });
    }
    let free = free_intervals(code, partition, &combined, &units);
    (units, free)
}

/// A pin if glueing over `start..end` would carry bytes along that must stay, in any of the gaps there.
fn between_blocks(partition: &Partition, combined: &Combined, start: Address, end: Address) -> Option<Pin> {
    let first = partition.gaps.partition_point(|gap| gap.end <= start);
    let gaps = partition.gaps.iter().enumerate().skip(first).take_while(|(_, gap)| gap.start < end);
    let is_kept =
        |&(index, gap): &(usize, &Gap)| gap.content != GapContent::Padding || combined.kept_gaps[index];
    gaps.into_iter().find(is_kept).map(|_| Pin { reason: PinReason::GluedToGap, evidence: start })
}

fn free_intervals(
    code: &CodeSpace<'_>,
    partition: &Partition,
    combined: &Combined,
    units: &[Unit],
) -> Vec<FreeInterval> {
    let pinned = units.iter().filter(|unit| unit.pin.is_some()).map(|unit| (unit.start, unit.end));
    let used = partition
        .gaps
        .iter()
        .enumerate()
        .filter(|(index, gap)| gap.content != GapContent::Padding || combined.kept_gaps[*index])
        .map(|(_, gap)| (gap.start, gap.end));
    let mut obstacles: Vec<(Address, Address)> = pinned.chain(used).collect();
    obstacles.sort_unstable();
    let mut intervals = Vec::new();
    let mut remaining = obstacles.into_iter().peekable();
    for (index, arena) in code.arenas.iter().enumerate() {
        let mut push = |start: Address, end: Address| {
            if start < end {
                intervals.push(FreeInterval { arena: index as u32, start, end });
            }
        };
        let mut position = arena.start;
        while let Some((start, end)) = remaining.next_if(|(start, _)| *start < arena.end) {
            push(position, start);
            position = position.max(end);
        }
        push(position, arena.end);
    }
    intervals
}

/// The unit that contains `address`.
pub fn unit_containing(units: &[Unit], address: Address) -> Option<UnitIndex> {
    let index = units.partition_point(|unit| unit.start <= address).checked_sub(1)?;
    (address < units[index].end).then_some(UnitIndex(index as u32))
}
