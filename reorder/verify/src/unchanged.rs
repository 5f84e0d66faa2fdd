//! Every byte that no other check answers for must be the same in both files.
//!
//! Takes the two files and the claims of the other checks (file ranges that they compare completely). Compares the rest and
//! passes each run of differing bytes to the caller, which may still explain it.

use std::ops::Range;

use rayon::prelude::*;

/// File ranges that other checks compare byte for byte.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    ranges: Vec<Range<u64>>,
}

impl Claims {
    /// Claims the `size` bytes at `offset`: another check compares them.
    pub(crate) fn add(&mut self, offset: u64, size: u64) {
        if size > 0 {
            self.ranges.push(offset..offset.saturating_add(size));
        }
    }

    /// Calls `differing` with each maximal run of differing bytes outside all claims, in file order; gives the
    /// number of bytes compared.
    pub(crate) fn compare_rest(
        mut self,
        old: &[u8],
        new: &[u8],
        mut differing: impl FnMut(Range<usize>),
    ) -> usize {
        self.ranges.sort_unstable_by_key(|range| range.start);
        let length = old.len().min(new.len());
        let mut compared = 0;
        let mut position = 0usize;
        let end_of_file = length as u64..length as u64;
        for claim in self.ranges.iter().chain([&end_of_file]) {
            let start = usize::try_from(claim.start).map_or(length, |start| start.min(length));
            if start > position {
                compare_block(old, new, position..start, &mut differing);
                compared += start - position;
            }
            position = position.max(usize::try_from(claim.end).map_or(length, |end| end.min(length)));
        }
        compared
    }
}

/// Finds the differing runs of one block; equal parts are skipped 4 KiB at a time, on all cores.
fn compare_block(old: &[u8], new: &[u8], block: Range<usize>, differing: &mut impl FnMut(Range<usize>)) {
    const STRIDE: usize = 4096;
    const MIN_STRIDES: usize = 64;
    let (before, after) = (&old[block.clone()], &new[block.clone()]);
    let strides =
        before.par_chunks(STRIDE).zip(after.par_chunks(STRIDE)).with_min_len(MIN_STRIDES).enumerate();
    let different: Vec<usize> =
        strides.filter(|(_, (before, after))| before != after).map(|(stride, _)| stride).collect();
    let mut run: Option<Range<usize>> = None;
    for stride in different {
        let start = block.start + stride * STRIDE;
        for position in start..(start + STRIDE).min(block.end) {
            if old[position] == new[position] {
                continue;
            }
            match &mut run {
                Some(run) if run.end == position => run.end += 1,
                _ => {
                    if let Some(complete) = run.replace(position..position + 1) {
                        differing(complete);
                    }
                }
            }
        }
    }
    if let Some(complete) = run {
        differing(complete);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the obvious byte-by-byte oracle, with claims that overlap and leave the file.
        #[test]
        fn reports_exactly_the_unclaimed_differences(
            flips in proptest::collection::vec(0usize..9000, 0..12),
            claims in proptest::collection::vec((0u64..10_000, 0u64..3000), 0..6),
        ) {
            let old = vec![0u8; 9000];
            let mut new = old.clone();
            for &flip in &flips {
                new[flip] = 1;
            }
            let claimed = |at: usize| claims.iter().any(|&(start, size)| (start..start + size).contains(&(at as u64)));
            let expected: Vec<usize> = (0..9000).filter(|&at| new[at] == 1 && !claimed(at)).collect();
            let mut claims_value = Claims::default();
            for &(start, size) in &claims {
                claims_value.add(start, size);
            }
            let mut found = Vec::new();
            let compared = claims_value.compare_rest(&old, &new, |run| found.extend(run));
            prop_assert_eq!(found, expected);
            prop_assert_eq!(compared, (0..9000).filter(|&at| !claimed(at)).count());
        }
    }
}
