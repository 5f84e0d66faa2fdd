//! Jumps to the sum of a stored distance and an address that the function's own code does not show.
//!
//! The address was loaded from memory, so it may be that of any function whose address code or a pointer holds. Nothing says
//! which words of data are distances either. Two neighbouring words that both lead from such a function to starts of functions
//! count as distances; one alone may be chance. Such words do not change, so they are right only if all three functions moved by
//! the same distance.

use std::collections::BTreeSet;
use std::ops::Range;

use rayon::prelude::*;

use super::shapes::Shape;
use super::words::TableWord;
use super::x86_64::Tables;
use crate::moves::Move;
use crate::report::{Check, Difference};
use reorder_base::address::Address;

/// Words on either side of an address that code names. Hand-written dispatch has fewer.
const MAX_WORDS: u64 = 64;
/// Sums that are tried for all functions together. More would take minutes, so they are a difference.
const MAX_SUMS: usize = 1 << 28;

/// A word that did not change, as a distance.
#[derive(Clone, Copy)]
struct Distance {
    place: Address,
    bytes: u64,
}

impl Tables<'_> {
    /// The first stale sum of each function in `shapes` that has a jump from an unknown address; `held` are the addresses of
    /// functions that code or a pointer holds, sorted, and `known` the words of jump tables.
    pub(super) fn check_loaded_bases(
        &self,
        shapes: &[(u32, Shape)],
        held: &[Address],
        known: &[Range<Address>],
    ) -> Vec<Difference> {
        let unknown: Vec<(u32, &Shape)> = shapes
            .iter()
            .filter(|(_, shape)| !shape.from_anywhere.is_empty())
            .map(|(owner, shape)| (*owner, shape))
            .collect();
        if unknown.is_empty() {
            return Vec::new();
        }
        let held: Vec<&Move> = held.iter().filter_map(|&address| self.function_at(address)).collect();
        let budget = MAX_SUMS / unknown.len();
        let stale = |(owner, shape): &(u32, &Shape)| self.stale_sum((*owner, shape), &held, known, budget);
        unknown.par_iter().filter_map(stale).collect()
    }

    /// The function that starts at `address`.
    fn function_at(&self, address: Address) -> Option<&Move> {
        self.pair.moves.starting_at(address)
    }

    fn stale_sum(
        &self,
        (owner, shape): (u32, &Shape),
        held: &[&Move],
        known: &[Range<Address>],
        mut budget: usize,
    ) -> Option<Difference> {
        let (lowest, highest) = (held.first()?.old_start, held.last()?.old_start);
        let (text, end) = (self.pair.moves.as_slice().first()?, self.pair.moves.as_slice().last()?);
        let (text, end) = (text.old_start.0, end.old_end().0);
        // From the addresses between the lowest and the highest, the distance leads somewhere into the text.
        let may_lead = |distance: &Distance| {
            let bytes = distance.bytes.cast_signed();
            let (least, most) = (text.wrapping_sub(highest.0), end.wrapping_sub(lowest.0));
            bytes != 0 && (least.cast_signed()..most.cast_signed()).contains(&bytes)
        };
        for table in self.named_by(owner, shape) {
            for (width, is_forward) in [(4, true), (4, false), (8, true), (8, false)] {
                let words = self.distances(table, width, is_forward, known);
                let neighbours = words.windows(2).filter_map(|pair| pair[0].zip(pair[1]));
                let neighbours = neighbours.filter(|(one, two)| one.bytes != two.bytes);
                for (one, two) in neighbours.filter(|(one, two)| may_lead(one) && may_lead(two)) {
                    let Some(rest) = budget.checked_sub(held.len()) else {
                        return Some(self.beyond_sums(shape, table));
                    };
                    budget = rest;
                    let stale = held.iter().find_map(|base| self.stale_from(base, one, two));
                    if stale.is_some() {
                        return stale;
                    }
                }
            }
        }
        None
    }

    /// Data that the function reads words of, or whose address it forms.
    fn named_by(&self, owner: u32, shape: &Shape) -> BTreeSet<Address> {
        let formed = self.region(owner).map(|region| region.named_data(self.pair.old)).unwrap_or_default();
        shape.reads.iter().copied().chain(formed).map(Address).collect()
    }

    /// The words from `table` on, or those before it; none in the place of a word that changed or is known to be no distance
    /// between functions.
    fn distances(
        &self,
        table: Address,
        width: u8,
        is_forward: bool,
        known: &[Range<Address>],
    ) -> Vec<Option<Distance>> {
        let step = u64::from(width);
        let place = |number: u64| match is_forward {
            true => table.plus(number * step),
            false => table.plus(((number + 1) * step).wrapping_neg()),
        };
        // Counted from zero, the target of a word is the distance itself.
        let words =
            (0..MAX_WORDS).map_while(|number| TableWord::at(self.pair, Address(0), place(number), width));
        let words = words.map(|word| {
            let (start, end) = (word.place, word.place.plus(step));
            let before = known.partition_point(|range| range.end <= start);
            let is_entry = known.get(before).is_some_and(|range| range.start < end);
            let written = self.written.partition_point(|place| place.plus(8) <= start);
            let is_pointer = self.written.get(written).is_some_and(|&place| place < end);
            let is_distance = !(word.has_changed || is_entry || is_pointer);
            is_distance.then_some(Distance { place: word.place, bytes: word.target.0 })
        });
        words.collect()
    }

    /// A difference if both distances lead from `base` to functions, and one of these is elsewhere now.
    fn stale_from(&self, base: &Move, one: Distance, two: Distance) -> Option<Difference> {
        let reached = |distance: Distance| self.function_at(base.old_start.plus(distance.bytes));
        let reached = [(one, reached(one)?), (two, reached(two)?)];
        let is_stale = |(distance, function): &&(Distance, &Move)| {
            !self.pair.is_target(function.old_start, base.new_start.plus(distance.bytes))
        };
        let (distance, function) = reached.iter().find(is_stale)?;
        Some(Difference::new(
            Check::JumpTables,
            self.pair.old.offset_of(distance.place.0).map(|offset| offset.0),
            format!("the word at {}, which a jump may add to {}", distance.place, base.old_start),
            format!("the distance to {}", function.old_start),
            format!("the distance to {}", base.new_start.plus(distance.bytes)),
        ))
    }

    fn beyond_sums(&self, shape: &Shape, table: Address) -> Difference {
        let jump = shape.from_anywhere.first().copied().unwrap_or_default();
        Difference::new(
            Check::JumpTables,
            self.pair.old.offset_of(jump).map(|offset| offset.0),
            format!("the jump at {}", Address(jump)),
            "a table that can be found among the data that its function names",
            format!("more words at {table} than can be tried"),
        )
    }
}
