//! Runs: units that are placed together so that functions keep their alignment.
//!
//! Padding belongs to the function before it, so most x86-64 functions begin and end at multiples of 16, and any order of
//! those keeps all of them aligned. A function that does not is placed together with its neighbours, from one such
//! multiple to the next. At the ends of a gap there may be no next multiple; the units there stay.

use std::ops::Range;

use reorder_image::macho::analysis::MachOAnalysis;

/// The alignment that compilers give functions for speed.
const ORDINARY: u64 = 16;

/// Neighbouring movable units that are placed as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Positions of the units in the analysis.
    pub(super) units: Range<usize>,
    /// First address.
    pub(super) start: u64,
    /// One past the last address.
    pub(super) end: u64,
}

/// All runs, by address.
pub(super) fn runs(analysis: &MachOAnalysis) -> Vec<Run> {
    let units = &analysis.units;
    let run = |units: Range<usize>, all: &[Range<u64>]| {
        let (start, end) = (all[units.start].start, all[units.end - 1].end);
        Run { units, start, end }
    };
    let ranges: Vec<Range<u64>> = units.iter().map(|unit| unit.start.0..unit.end.0).collect();
    let is_aligned = |address: u64| address.is_multiple_of(ORDINARY);
    let is_movable = |index: &usize| units[*index].pin.is_none();
    let movable = || (0..units.len()).filter(is_movable);
    let closed = movable().filter(|&at| is_aligned(ranges[at].start) && is_aligned(ranges[at].end)).count();
    if closed * 2 < movable().count() {
        // Code built for size is not aligned at all.
        return movable().map(|index| run(index..index + 1, &ranges)).collect();
    }
    let mut runs: Vec<Run> = Vec::new();
    let mut open: Option<usize> = None;
    for (index, range) in ranges.iter().enumerate() {
        // A unit that stays interrupts the run before it.
        let first = open.take().or(is_aligned(range.start).then_some(index)).filter(|_| is_movable(&index));
        match first {
            Some(first) if is_aligned(range.end) => runs.push(run(first..index + 1, &ranges)),
            first => open = first,
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;
    use reorder_base::address::Address;
    use reorder_image::macho::analysis::units::Unit;
    use reorder_image::macho::file::MachOFile;
    use reorder_image::macho::linked::library;
    use reorder_image::pins::{Pin, PinReason};

    /// The runs of units of these sizes from `start` on, those with a star pinned, as ranges of units.
    fn of(start: u64, sizes: &[(u64, bool)]) -> Vec<Range<usize>> {
        let bytes = library("x86_64", "s", ".globl _f\n_f: ret", &[], &[]);
        let mut analysis = MachOAnalysis::new(&MachOFile::parse(&bytes).unwrap()).unwrap();
        let mut next = Address(start);
        let unit = |&(size, is_pinned): &(u64, bool)| {
            let start = next;
            next = next.plus(size);
            let pin = is_pinned.then_some(Pin { reason: PinReason::NotDecodable, evidence: start });
            Unit { start, end: start.plus(size), pin }
        };
        analysis.units = sizes.iter().map(unit).collect();
        runs(&analysis).into_iter().map(|run| run.units).collect()
    }

    #[test]
    fn runs_reach_from_one_aligned_place_to_the_next() {
        let movable = |sizes: &[u64]| sizes.iter().map(|size| (*size, false)).collect::<Vec<_>>();
        assert_eq!(of(0x1000, &movable(&[16, 32, 16])), [0..1, 1..2, 2..3]);
        assert_eq!(
            of(0x1000, &movable(&[16, 16, 16, 5, 3, 8, 16, 16])),
            [0..1, 1..2, 2..3, 3..6, 6..7, 7..8]
        );
        assert_eq!(of(0x1000, &movable(&[16, 16, 32, 5])), [0..1, 1..2, 2..3], "the end is not padded");
        assert_eq!(of(0x1008, &movable(&[8, 16, 16])), [1..2, 2..3], "nor is the beginning");
        assert_eq!(of(0x1004, &movable(&[4, 12, 20, 16])), [0..1, 1..2, 2..3, 3..4], "nothing is aligned");
        let pinned = [(16, false), (16, false), (5, false), (3, true), (8, false), (16, false), (16, false)];
        assert_eq!(of(0x1000, &pinned), [0..1, 1..2, 5..6, 6..7], "around what stays");
    }
}
