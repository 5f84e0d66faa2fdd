//! A wanted order of functions → new addresses of units.
//!
//! Functions of Mach-O images have no padding between them, and units that stay cut `__text` into gaps whose sizes add up
//! to those of all units that move: every gap is filled exactly, or units that are left over stay as well.

use layout_algos::placement::{Interval, MovableUnit, place_exactly};

use super::runs::runs;
use crate::address_map::{AddressMap, Move};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::Result;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::macho::analysis::MachOAnalysis;

/// Position of a unit in the analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnitIndex(pub u32);

/// Where everything goes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address map.
    pub map: AddressMap,
    /// Movable units that had to stay because no free place had exactly their size.
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
    let runs = runs(analysis);
    let mut run_of: Vec<Option<usize>> = vec![None; analysis.units.len()];
    for (number, run) in runs.iter().enumerate() {
        run_of[run.units.clone()].fill(Some(number));
    }
    let mut is_taken = vec![false; runs.len()];
    let mut take = |index: &UnitIndex| {
        run_of[index.0 as usize].filter(|run| !std::mem::replace(&mut is_taken[*run], true))
    };
    let (wanted_front, rest) = wanted.split_at(front.min(wanted.len()));
    let mut order: Vec<usize> = wanted_front.iter().filter_map(&mut take).collect();
    let front = order.len();
    order.extend(rest.iter().filter_map(&mut take));
    let least_modulus = analysis.least_alignment();
    let movable: Vec<MovableUnit> = runs
        .iter()
        .map(|run| {
            let (size, modulus) = (run.end - run.start, analysis.alignment_of(Address(run.start)));
            MovableUnit { start: run.start, size, modulus, least_modulus }
        })
        .collect();
    let mut free: Vec<Interval> = Vec::new();
    for run in &runs {
        match free.last_mut().filter(|gap| gap.end == run.start) {
            Some(gap) => gap.end = run.end,
            None => free.push(Interval { start: run.start, end: run.end }),
        }
    }
    let placement = place_exactly(&movable, &order, front, &free);
    let moves = runs.iter().zip(&placement.starts).map(|(run, &start)| {
        let (old, size) = (Address(run.start), run.end - run.start);
        Move { old, new: NewAddress(start), size }
    });
    let kept = placement.pinned.iter().flat_map(|&run| runs[run].units.clone());
    let mut without_room: Vec<UnitIndex> = kept.map(|unit| UnitIndex(unit as u32)).collect();
    let is_left_out = |index: &&UnitIndex| {
        run_of[index.0 as usize].is_none() && analysis.units[index.0 as usize].pin.is_none()
    };
    without_room.extend(wanted_front.iter().filter(is_left_out));
    without_room.sort_unstable();
    Ok(Plan { map: AddressMap::new(moves)?, without_room })
}
