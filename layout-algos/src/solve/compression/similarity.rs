//! Finds functions with similar content.
//!
//! Takes the fingerprints; gives pairs of functions with the number of hashes they share. Comparing all with all would be
//! too slow: each function's smallest hashes, after a mixing step that makes them a random sample, are its
//! sketch, and only functions with a common hash in their sketches are compared (Broder, "On the resemblance and
//! containment of documents", 1997). Functions that share most of their content nearly always have a common hash.

use rayon::prelude::*;

use crate::ids::FunctionId;
use crate::problem::Rows;

/// Hashes in a sketch: two functions that share half of their content have no common hash in about one of a hundred cases.
const SKETCH: usize = 8;

/// Each function is compared with this many that have a hash of its sketch and are before it in link order.
/// Bounds the pairs where one piece of content is everywhere.
const MAX_COMPARED: usize = 8;

/// Two functions and what they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SimilarPair {
    /// In link order.
    pub(super) functions: [FunctionId; 2],
    /// Hashes that both have.
    pub(super) shared: u32,
}

/// All pairs that were compared and share something.
pub(super) struct SimilarPairs {
    pairs: Vec<SimilarPair>,
    /// By function: its number of hashes.
    contents: Vec<u32>,
}

impl SimilarPairs {
    /// The pairs among the functions of `fingerprints`, whose rows ascend.
    pub(super) fn of(fingerprints: &Rows<u32>) -> Self {
        let sketches: Vec<Vec<(u32, u32)>> = (0..fingerprints.len())
            .into_par_iter()
            .map(|function| sketch(fingerprints.row(function), function as u32))
            .collect();
        let mut index: Vec<(u32, u32)> = sketches.into_iter().flatten().collect();
        index.par_sort_unstable();
        let mut candidates: Vec<[u32; 2]> = index
            .chunk_by(|one, other| one.0 == other.0)
            .flat_map(|same| {
                same.iter().enumerate().flat_map(move |(position, &(_, function))| {
                    let before = &same[position.saturating_sub(MAX_COMPARED)..position];
                    before.iter().map(move |&(_, earlier)| [earlier, function])
                })
            })
            .collect();
        candidates.par_sort_unstable();
        candidates.dedup();
        let pairs = candidates
            .into_par_iter()
            .map(|pair| SimilarPair {
                functions: pair.map(FunctionId),
                shared: shared(fingerprints.row(pair[0] as usize), fingerprints.row(pair[1] as usize)),
            })
            .collect();
        let contents = fingerprints.iter().map(|row| row.len() as u32).collect();
        Self { pairs, contents }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = SimilarPair> + '_ {
        self.pairs.iter().copied()
    }

    /// Number of hashes of one function.
    pub(super) fn content(&self, function: FunctionId) -> u32 {
        self.contents[function.index()]
    }
}

/// The smallest hashes of `row` after mixing, each with the function's number.
fn sketch(row: &[u32], function: u32) -> Vec<(u32, u32)> {
    let mut mixed: Vec<u32> = row.iter().map(|&hash| mix(hash)).collect();
    if mixed.len() > SKETCH {
        mixed.select_nth_unstable(SKETCH);
        mixed.truncate(SKETCH);
    }
    mixed.into_iter().map(|hash| (hash, function)).collect()
}

/// A permutation of all numbers without visible order (the finalisation step of MurmurHash3).
fn mix(hash: u32) -> u32 {
    let hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

/// Number of items that two ascending lists have in common.
fn shared(mut one: &[u32], mut other: &[u32]) -> u32 {
    let mut count = 0;
    while let ([first, one_rest @ ..], [second, other_rest @ ..]) = (one, other) {
        count += u32::from(first == second);
        if first <= second {
            one = one_rest;
        }
        if second <= first {
            other = other_rest;
        }
    }
    count
}
