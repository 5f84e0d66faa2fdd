//! A wanted order of functions → new addresses of units.
//!
//! Functions of Mach-O images stand without padding between them, and what stays cuts `__text` into gaps whose sizes add
//! up to those of all units that move: every gap is filled exactly, or units that are left over stay as well.

use layout_algos::placement::{Interval, MovableUnit, place_exactly};

use crate::address::NewAddress;
use crate::error::Result;
use crate::image::functions::{FunctionIndex, FunctionTable};
use crate::image::macho::analysis::MachOAnalysis;
use crate::relocate::address_map::{AddressMap, Move};

/// Position of a unit in the analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitIndex(pub u32);

/// Where everything goes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address map.
    pub map: AddressMap,
    /// Movable units that had to stay because nothing free was just large enough.
    pub without_room: Vec<UnitIndex>,
}

/// All units once: those that hold the functions of `front`, in that order, then the others by address; and the number of
/// the former.
#[must_use]
pub fn unit_order(
    analysis: &MachOAnalysis,
    functions: &FunctionTable<'_>,
    front: &[FunctionIndex],
) -> (Vec<UnitIndex>, usize) {
    let mut is_placed = vec![false; analysis.units.len()];
    let named = front.iter().filter_map(|&function| {
        let start = functions.get(function).start;
        let after = analysis.units.partition_point(|unit| unit.start <= start);
        let unit = after.checked_sub(1).filter(|&at| start < analysis.units[at].end)?;
        Some(UnitIndex(unit as u32))
    });
    let mut is_new = |index: &UnitIndex| !std::mem::replace(&mut is_placed[index.0 as usize], true);
    let mut wanted: Vec<UnitIndex> = named.filter(&mut is_new).collect();
    let count = wanted.len();
    wanted.extend((0..analysis.units.len() as u32).map(UnitIndex).filter(is_new));
    (wanted, count)
}

/// Places the units in this order, the first `front` of them together.
///
/// # Errors
/// A placement that overlaps, which would be a defect of the placement.
pub fn plan(analysis: &MachOAnalysis, wanted: &[UnitIndex], front: usize) -> Result<Plan> {
    let members: Vec<UnitIndex> = (0..analysis.units.len() as u32)
        .map(UnitIndex)
        .filter(|index| analysis.units[index.0 as usize].pin.is_none())
        .collect();
    let position = |index: &UnitIndex| members.binary_search(index).ok();
    let (front, rest) = wanted.split_at(front.min(wanted.len()));
    let mut order: Vec<usize> = front.iter().filter_map(position).collect();
    let front = order.len();
    order.extend(rest.iter().filter_map(position));
    let movable: Vec<MovableUnit> = members
        .iter()
        .map(|index| {
            let unit = &analysis.units[index.0 as usize];
            let (modulus, least_modulus) = (analysis.alignment_of(unit.start), analysis.least_alignment());
            MovableUnit { start: unit.start.0, size: unit.size(), modulus, least_modulus }
        })
        .collect();
    keep_aligned(&movable, &mut order[..front]);
    keep_aligned(&movable, &mut order[front..]);
    let free: Vec<Interval> =
        analysis.free().into_iter().map(|gap| Interval { start: gap.start.0, end: gap.end.0 }).collect();
    let placement = place_exactly(&movable, &order, front, &free);
    let moves = members.iter().zip(&placement.starts).map(|(index, &start)| {
        let unit = &analysis.units[index.0 as usize];
        Move { old: unit.start, new: NewAddress(start), size: unit.size() }
    });
    let without_room = placement.pinned.iter().map(|&position| members[position]).collect();
    Ok(Plan { map: AddressMap::new(moves)?, without_room })
}

/// Puts the few units of which the size is no multiple of the usual alignment behind all others: each shifts whatever
/// stands behind it.
fn keep_aligned(units: &[MovableUnit], order: &mut [usize]) {
    const USUAL: u64 = 16;
    let is_aligned = |unit: usize| units[unit].size.is_multiple_of(USUAL);
    let is_usual = order.iter().filter(|&&unit| is_aligned(unit)).count() * 10 >= order.len() * 9;
    if is_usual {
        order.sort_by_key(|&unit| !is_aligned(unit));
    }
}
