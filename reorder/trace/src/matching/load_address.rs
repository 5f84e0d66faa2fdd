//! Where an image was loaded, deduced from addresses in the process.
//!
//! Loaders choose multiples of a page, so that an address can belong only to functions with the same offset in a page.
//! Every pair of an address and a function start votes for one load address; the true one explains nearly all
//! addresses, a wrong one a few by chance.

use reorder_base::address::{Address, RuntimeAddress};
use reorder_image::functions::FunctionTable;

/// The difference between addresses in one process and stated addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoadAddress(u64);

/// Smallest page of any supported system.
const PAGE: u64 = 4096;
/// The most addresses that vote; each votes for (functions of the image / 4,096 × 16) load addresses on average.
const VOTERS: usize = 256;
/// Votes of one address: bounds memory where an image claims a million functions at one place in their pages.
const MAX_VOTES: usize = 1 << 14;
/// Fewer function starts than these agree by chance.
const MIN_HITS: usize = 4;

/// Function starts of one image by their offset in a page.
pub(crate) struct PageOffsets(Vec<(u64, u64)>);

impl PageOffsets {
    pub(crate) fn of(functions: &FunctionTable<'_>) -> Self {
        let mut sorted: Vec<(u64, u64)> =
            functions.iter().map(|(_, function)| (function.start.0 % PAGE, function.start.0)).collect();
        sorted.sort_unstable();
        sorted.dedup();
        Self(sorted)
    }

    fn starts_at(&self, offset: u64) -> impl Iterator<Item = u64> + '_ {
        let first = self.0.partition_point(|(other, _)| *other < offset);
        self.0[first..].iter().take_while(move |(other, _)| *other == offset).map(|(_, start)| *start)
    }
}

impl LoadAddress {
    /// The load address that explains `addresses`, if one is far better than all others.
    pub(crate) fn deduce(
        addresses: &[RuntimeAddress],
        offsets: &PageOffsets,
        functions: &FunctionTable<'_>,
    ) -> Option<Self> {
        let mut sorted: Vec<u64> = addresses.iter().map(|address| address.0).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let stride = sorted.len().div_ceil(VOTERS).max(1);
        let mut votes: Vec<u64> = Vec::new();
        for address in sorted.iter().step_by(stride) {
            let starts = offsets.starts_at(address % PAGE);
            votes.extend(starts.take(MAX_VOTES).map(|start| address.wrapping_sub(start)));
        }
        votes.sort_unstable();
        let mut counted: Vec<(usize, u64)> =
            votes.chunk_by(|left, right| left == right).map(|same| (same.len(), same[0])).collect();
        counted.sort_unstable_by_key(|(count, bias)| (std::cmp::Reverse(*count), *bias));
        let (hits, bias) = *counted.first()?;
        let runner_up = counted.get(1).map_or(0, |second| second.0);
        let candidate = Self(bias);
        let inside = sorted
            .iter()
            .filter(|address| functions.containing(candidate.stated(RuntimeAddress(**address))).is_some());
        let explains = inside.count() * 100 >= sorted.len() * 95;
        (hits >= MIN_HITS && hits >= 2 * runner_up && explains).then_some(candidate)
    }

    /// The address as the image states it.
    pub(crate) fn stated(self, address: RuntimeAddress) -> Address {
        Address(address.0.wrapping_sub(self.0))
    }
}
