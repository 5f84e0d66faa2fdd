//! A wanted order of functions → new addresses of units.

use layout_algos::placement::{Interval, MovableUnit, place};
use rayon::prelude::*;

use crate::address_map::{AddressMap, Move};
use crate::elf::alignment::{Alignment, alignments};
use crate::elf::busy_pages::filling_order;
use crate::elf::code::placed_ranges;
use crate::elf::erratum::Erratum;
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};
use reorder_base::hint::{Hint, MapHint};
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::units::{Unit, UnitIndex, unit_containing};
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// Where everything goes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The address map.
    pub map: AddressMap,
    /// Movable units that had to stay because no free interval was large enough.
    pub without_room: Vec<UnitIndex>,
}

/// Places the units of `front` first, in that order, then all others in their old order; each arena by itself.
/// Recorded runs need the first `needed` of `front`.
///
/// # Errors
/// A placement that overlaps, which would be a defect of the placement.
pub fn plan(
    analysis: &Analysis<'_>,
    functions: &ElfFunctions<'_>,
    front: &[FunctionIndex],
    needed: usize,
) -> Result<Plan> {
    let (_, needed_units) = unit_order(analysis, &functions.table, front.get(..needed).unwrap_or(front));
    let (wanted, _) = unit_order(analysis, &functions.table, front);
    let alignments = alignments(analysis, functions);
    let erratum = erratum_to_avoid(analysis);
    let mut moves = Vec::new();
    let mut without_room = Vec::new();
    for arena in 0..analysis.code.arenas.len() as u32 {
        let is_here = |index: UnitIndex| analysis.units[index.0 as usize].arena == arena;
        let members: Vec<UnitIndex> = (0..analysis.units.len() as u32)
            .map(UnitIndex)
            .filter(|&index| is_here(index) && analysis.units[index.0 as usize].pin.is_none())
            .collect();
        let position_of = |index: UnitIndex| members.binary_search(&index).ok();
        let mut order: Vec<usize> = wanted.par_iter().filter_map(|&index| position_of(index)).collect();
        let movable: Vec<MovableUnit> = members
            .par_iter()
            .map(|&index| movable_unit(analysis, index, alignments[index.0 as usize]))
            .collect();
        let free: Vec<Interval> = analysis
            .free
            .iter()
            .filter(|interval| interval.arena == arena)
            .map(|interval| Interval { start: interval.start.0, end: interval.end.0 })
            .collect();
        let front = wanted[..needed_units]
            .iter()
            .map(|index| &analysis.units[index.0 as usize])
            .filter(|unit| unit.arena == arena);
        let free = filling_order(front, free);
        let mut placement = place(&movable, &order, &free);
        if let Some(erratum) = &erratum {
            let sensitive = erratum.of(members.iter().map(|index| index.0 as usize));
            let by_start = sorted(free.clone());
            for round in 0.. {
                let in_danger = sensitive.settle(&movable, &mut placement.starts, &by_start);
                if in_danger.is_empty() {
                    break;
                }
                if round == MAX_SETTLING_ROUNDS {
                    return Err(unsettled(analysis.units[members[in_danger[0]].0 as usize].start));
                }
                // At their present addresses they are safe.
                order.retain(|unit| in_danger.binary_search(unit).is_err());
                placement = place(&movable, &order, &free);
            }
        }
        for (&index, &start) in members.iter().zip(&placement.starts) {
            let unit = &analysis.units[index.0 as usize];
            moves.push(Move { old: unit.start, new: NewAddress(start), size: unit.size() });
        }
        without_room.extend(placement.pinned.iter().map(|&position| members[position]));
    }
    Ok(Plan { map: AddressMap::new(moves)?, without_room })
}

/// Rounds of pinning units for which no safe place is found; each pins a few units of a large image.
const MAX_SETTLING_ROUNDS: usize = 16;

fn unsettled(address: Address) -> Error {
    let cure =
        "use another order, or relink without --fix-cortex-a53-843419 if it never runs on a Cortex-A53";
    Refusal::new(RefusalCode::OutOfReach, "no layout was found that avoids erratum 843419", cure)
        .at(address)
        .into()
}

fn sorted(mut free: Vec<Interval>) -> Vec<Interval> {
    free.sort_unstable_by_key(|interval| interval.start);
    free
}

fn erratum_to_avoid(analysis: &Analysis<'_>) -> Option<Erratum> {
    let ranges: Vec<_> = analysis.units.iter().map(|unit| unit.start..unit.end).collect();
    (analysis.code.processor == Processor::Aarch64).then(|| Erratum::to_avoid(&analysis.code, &ranges))?
}

/// A unit that refers to its own end keeps one byte of padding there, so that the end never becomes the start of
/// something else.
fn movable_unit(analysis: &Analysis<'_>, index: UnitIndex, alignment: Alignment) -> MovableUnit {
    let unit: &Unit = &analysis.units[index.0 as usize];
    let has_room = analysis.units.get(index.0 as usize + 1).is_none_or(|next| next.start > unit.end);
    let guard = u64::from(has_room && analysis.refers_to_own_end(unit));
    // Aligned data inside the unit makes its modulus a necessity.
    let data = if unit.keeps_alignment { unit.modulus } else { 1 };
    let (modulus, least_modulus) = (alignment.ordinary.max(data), alignment.least.max(data));
    MovableUnit { start: unit.start.0, size: unit.size() + guard, modulus, least_modulus }
}

/// Every unit once: those of `order` first, the rest by address; and how many `order` named.
fn unit_order(
    analysis: &Analysis<'_>,
    functions: &FunctionTable<'_>,
    order: &[FunctionIndex],
) -> (Vec<UnitIndex>, usize) {
    let mut is_placed = vec![false; analysis.units.len()];
    let unit_of = |function: &FunctionIndex| unit_containing(&analysis.units, functions.get(*function).start);
    let named: Vec<UnitIndex> = order.par_iter().filter_map(unit_of).collect();
    let mut wanted = Vec::with_capacity(analysis.units.len());
    let mut is_new = |index: &UnitIndex| !std::mem::replace(&mut is_placed[index.0 as usize], true);
    wanted.extend(named.into_iter().filter(&mut is_new));
    let count = wanted.len();
    wanted.extend((0..analysis.units.len() as u32).map(UnitIndex).filter(is_new));
    (wanted, count)
}

/// Detaches from a function the bytes before it that do not move with it in the `map`.
///
/// Data before an entry can look like filler, and filler like such data, so only one of the two images that the map
/// connects shows what belongs to the function.
///
/// # Errors
/// A map that puts two functions into one place.
fn follow_map(analysis: &mut Analysis<'_>, map: &AddressMap) -> Result<()> {
    let back = map.inverse()?;
    let is_taken = |address: Address| back.map(Address(map.map(address).0)).0 != address.0;
    let delta = |address: Address| map.map(address).0.wrapping_sub(address.0);
    for (index, block) in analysis.kept.partition.blocks.iter_mut().enumerate() {
        let expected = delta(block.first_function);
        let before = (block.start.0..block.first_function.0).map(Address);
        let other = before.rev().find(|&address| delta(address) != expected || is_taken(address));
        let Some(start) = other.map(|address| address.plus(1)) else { continue };
        let unit = unit_containing(&analysis.units, block.start);
        if let Some(unit) = unit.map(|unit| &mut analysis.units[unit.0 as usize])
            && unit.blocks.start as usize == index
        {
            unit.start = start;
        }
        block.start = start;
    }
    Ok(())
}

/// Uses a given map as the plan if it keeps functions whole, disjoint and inside the code.
///
/// Pins are not consulted: an image that was relocated before may look different to the analysis (a word that happens
/// to be a distance to a function), and the result of a map is compared with the digest that it names.
///
/// # Errors
/// The first block that the map tears apart or puts where something else is.
pub(crate) fn plan_from_map(analysis: &mut Analysis<'_>, map: AddressMap) -> Result<Plan> {
    follow_map(analysis, &map)?;
    let wrong = |message: String| Error::usage(message).with_hint(Hint::Map(MapHint::OfImage));
    for block in &analysis.partition.blocks {
        let new_start = map.map(block.start).0;
        if map.map(Address(block.end.0 - 1)).0 != new_start.wrapping_add(block.size() - 1) {
            return Err(wrong(format!("the map splits the function at {}", block.start)));
        }
    }
    let mut placed: Vec<(u64, u64)> = Vec::new();
    for range in placed_ranges(analysis, &map) {
        let arena = &analysis.code.arenas[range.arena as usize];
        let (start, end) = (range.new_start(), range.new_start().0.checked_add(range.size()));
        if start < arena.start || end.is_none_or(|end| end > arena.end.0) {
            return Err(wrong(format!("the map moves the function at {} out of its section", range.start)));
        }
        placed.push((start.0, range.size()));
    }
    placed.sort_unstable();
    if let Some(pair) = placed.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        return Err(wrong(format!("the map puts two functions at {:#x}", pair[1].0)));
    }
    Ok(Plan { map, without_room: Vec::new() })
}
