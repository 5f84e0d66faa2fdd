//! Which functions have content in common, and how much.

use std::cmp::Reverse;

use rayon::prelude::*;

use crate::ids::FunctionId;
use crate::problem::{LayoutProblem, Rows};

/// Hashes that more functions have say little about which ones belong together, and would take most of the time. So more copies of one
/// function than this are not known to be equal: they are small, and near each other in the linker's order.
const MAX_HOLDERS: usize = 64;

/// How many functions are kept as similar to one.
const MAX_SIMILAR: usize = 64;

/// Added to the number of a function's hashes: of two functions that are known whole, the larger one has the larger share.
const SHARE_OFFSET: u64 = 8;

/// What orders by content need to know.
pub(super) struct Content {
    pub(super) common: CommonContent,
    /// By function: its place in the order by content alone; empty where that is not tried.
    pub(super) ranks: Vec<u32>,
}

/// The common content of the functions of a problem.
pub(super) struct CommonContent {
    /// By function: how many hashes it has, common or not.
    hashes: Vec<u32>,
    /// By function: those of which it holds the largest shares, the largest first.
    pub(super) similar: Rows<Similar>,
}

/// A function that has content in common with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Similar {
    pub(super) function: FunctionId,
    /// How many of its hashes the other one has.
    pub(super) shared: u32,
}

impl CommonContent {
    /// `None` if the problem has no fingerprints.
    ///
    /// Time is O(hashes · (log hashes + [`MAX_HOLDERS`])).
    pub(super) fn new(problem: &LayoutProblem) -> Option<Self> {
        let fingerprints = problem.fingerprints()?;
        let functions = problem.function_count();
        let mut pairs: Vec<(u32, u32)> = (0..functions)
            .into_par_iter()
            .flat_map_iter(|function| {
                fingerprints.row(function).iter().map(move |&hash| (hash, function as u32))
            })
            .collect();
        pairs.par_sort_unstable();
        let mut holders = Rows::default();
        for same in pairs.chunk_by(|one, other| one.0 == other.0) {
            if (2..=MAX_HOLDERS).contains(&same.len()) {
                holders.push(same.iter().map(|&(_, function)| function)).ok()?;
            }
        }
        drop(pairs);
        let held = || {
            let numbered = holders.iter().enumerate();
            numbered
                .flat_map(|(piece, row)| row.iter().map(move |&function| (function as usize, piece as u32)))
        };
        let pieces = Rows::grouped(functions, held).ok()?;
        let hashes = (0..functions).map(|function| fingerprints.row(function).len() as u32).collect();
        let mut content = Self { hashes, similar: Rows::default() };
        content.similar = content.similar_functions(&pieces, &holders)?;
        Some(content)
    }

    /// `shared` hashes as a share of all that `function` has, in 2⁻²⁰.
    pub(super) fn share(&self, function: FunctionId, shared: u32) -> u64 {
        (u64::from(shared) << 20) / (u64::from(self.hashes[function.index()]) + SHARE_OFFSET)
    }

    fn similar_functions(&self, pieces: &Rows<u32>, holders: &Rows<u32>) -> Option<Rows<Similar>> {
        let count = self.hashes.len();
        let of_function = |(counts, touched): &mut (Vec<u32>, Vec<u32>), function: usize| {
            for &piece in pieces.row(function) {
                for &holder in holders.row(piece as usize) {
                    if counts[holder as usize] == 0 {
                        touched.push(holder);
                    }
                    counts[holder as usize] += 1;
                }
            }
            let mut similar: Vec<Similar> = touched
                .drain(..)
                .map(|holder| {
                    let shared = std::mem::take(&mut counts[holder as usize]);
                    Similar { function: FunctionId(holder), shared }
                })
                .filter(|similar| similar.function.index() != function)
                .collect();
            let first =
                |similar: &Similar| (Reverse(self.share(similar.function, similar.shared)), similar.function);
            if similar.len() > MAX_SIMILAR {
                similar.select_nth_unstable_by_key(MAX_SIMILAR, first);
                similar.truncate(MAX_SIMILAR);
            }
            similar.sort_unstable_by_key(first);
            // It had room for every function with a common hash.
            similar.shrink_to_fit();
            similar
        };
        let scratch = || (vec![0; count], Vec::new());
        let all: Vec<Vec<Similar>> = (0..count).into_par_iter().map_init(scratch, of_function).collect();
        let mut similar = Rows::default();
        all.into_iter().try_for_each(|functions| similar.push(functions)).ok()?;
        Some(similar)
    }
}
