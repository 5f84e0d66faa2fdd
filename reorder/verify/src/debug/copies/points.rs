//! The addresses at which both sides are looked up, and what is said of each.

use std::collections::HashMap;

use reorder_base::address::{Address, NewAddress};

/// An address of code that is copied, and the same place in the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) copy: NewAddress,
    pub(crate) original: Address,
}

/// All points.
pub(super) struct Points {
    /// Ascending by copy.
    points: Vec<Point>,
    /// Positions in `points`, ascending by original.
    by_original: Vec<u32>,
}

impl Points {
    pub(super) fn of(mut points: Vec<Point>) -> Self {
        points.sort_unstable();
        let mut by_original: Vec<u32> = (0..).take(points.len()).collect();
        by_original.sort_unstable_by_key(|&at| points[at as usize].original);
        Self { points, by_original }
    }

    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// The copy of the point with this number.
    pub(super) fn by_copy(&self, at: usize) -> NewAddress {
        self.points[at].copy
    }

    /// Addresses of the originals, ascending.
    pub(super) fn originals(&self) -> Vec<u64> {
        self.by_original.iter().map(|&at| self.points[at as usize].original.0).collect()
    }

    /// Addresses of the copies, ascending.
    pub(super) fn copies(&self) -> Vec<u64> {
        self.points.iter().map(|point| point.copy.0).collect()
    }

    /// What is said of the originals, in the order of the copies.
    pub(super) fn in_order(&self, of_originals: Vec<u32>) -> Vec<u32> {
        let mut ordered = vec![0; of_originals.len()];
        for (&at, said) in self.by_original.iter().zip(of_originals) {
            ordered[at as usize] = said;
        }
        ordered
    }
}

/// Gives a number to each sequence of things that is said of an address; 0 is the empty one. Equal numbers are equal
/// sequences.
#[derive(Debug)]
pub(super) struct Saying {
    things: HashMap<Vec<u8>, u32>,
    sequences: HashMap<(u32, u32), u32>,
    /// How much may still be said: a few bytes can say very much of all code.
    left: u64,
}

impl Saying {
    /// For so many points, described by so many bytes.
    pub(super) fn for_points(points: usize, bytes: usize) -> Self {
        /// Nested calls that were inlined, and variables, at one address; compilers write a tenth of it.
        const MAX_FOR_A_POINT: u64 = 1024;
        let left = (points as u64).saturating_mul(MAX_FOR_A_POINT).saturating_add(bytes as u64);
        Self { things: HashMap::new(), sequences: HashMap::new(), left }
    }

    /// Whether more was said than the images justify, so that nothing is known.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// The number of a thing.
    pub(super) fn thing(&mut self, bytes: Vec<u8>) -> u32 {
        let next = self.things.len() as u32;
        *self.things.entry(bytes).or_insert(next)
    }

    /// The number of the sequence that continues another one with a thing.
    fn after(&mut self, sequence: u32, thing: u32) -> u32 {
        let next = self.sequences.len() as u32 + 1;
        *self.sequences.entry((sequence, thing)).or_insert(next)
    }

    /// Says `thing` of all `addresses`, which ascend, in `start..end`.
    pub(super) fn say(&mut self, addresses: &[u64], said: &mut [u32], (start, end): (u64, u64), thing: u32) {
        let from = addresses.partition_point(|address| *address < start);
        let to = addresses.partition_point(|address| *address < end);
        self.left = self.left.saturating_sub(to.saturating_sub(from) as u64 + 1);
        if self.is_exhausted() {
            return;
        }
        for sequence in said.get_mut(from..to).unwrap_or_default() {
            *sequence = self.after(*sequence, thing);
        }
    }
}
