//! Every write into the output, in file offsets. Bytes that are not listed equal the input's.

use std::ops::Range;

use rayon::prelude::*;

/// File ranges that were written, sorted and merged on demand.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    writes: Vec<Range<usize>>,
}

impl Ledger {
    /// Lists a write.
    pub fn record(&mut self, range: Range<usize>) {
        match self.writes.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.writes.push(range),
        }
    }

    /// Adds the writes of another ledger.
    pub fn append(&mut self, other: Self) {
        other.writes.into_iter().for_each(|range| self.record(range));
    }

    /// Replaces bytes of `output` and lists them, unless they already have these values.
    pub fn write(&mut self, output: &mut [u8], start: usize, bytes: &[u8]) {
        let range = start..start + bytes.len();
        if output[range.clone()] != *bytes {
            output[range.clone()].copy_from_slice(bytes);
            self.record(range);
        }
    }

    /// The first byte that differs between `input` and `output` without being listed.
    pub(crate) fn first_unlisted_difference(&mut self, input: &[u8], output: &[u8]) -> Option<usize> {
        self.writes.sort_unstable_by_key(|range| (range.start, range.end));
        let mut position = 0;
        for range in &self.writes {
            if range.start > position
                && let Some(found) =
                    first_difference(&input[position..range.start], &output[position..range.start])
            {
                return Some(position + found);
            }
            position = position.max(range.end);
        }
        first_difference(&input[position..], &output[position..]).map(|found| position + found)
    }
}

fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    const CHUNK: usize = 1 << 16;
    let chunks = left.par_chunks(CHUNK).zip(right.par_chunks(CHUNK)).enumerate();
    chunks.filter(|(_, (left, right))| left != right).find_map_first(|(index, (left, right))| {
        left.iter().zip(right).position(|(left, right)| left != right).map(|found| index * CHUNK + found)
    })
}

#[cfg(test)]
mod tests {
    use super::Ledger;

    #[test]
    fn a_write_that_is_not_listed_is_found() {
        let input = vec![0u8; 10_000];
        let mut output = input.clone();
        let mut ledger = Ledger::default();
        ledger.write(&mut output, 5000, &[1, 2]);
        assert_eq!(ledger.first_unlisted_difference(&input, &output), None);
        output[9000] = 1;
        assert_eq!(ledger.first_unlisted_difference(&input, &output), Some(9000));
        output[4999] = 1;
        assert_eq!(ledger.first_unlisted_difference(&input, &output), Some(4999));
    }
}
