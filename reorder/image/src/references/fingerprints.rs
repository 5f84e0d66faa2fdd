//! What the code of each function looks like, independent of its address.
//!
//! Takes the image and its functions; gives [`Fingerprints`]. Operands that state addresses elsewhere count as zero
//! bytes, so that the same function has the same fingerprint at any address and in any layout. Functions that share
//! many hashes compress well side by side.

use layout_algos::problem::{Rows, TooManyItems};
use rayon::prelude::*;

use super::bodies::{Body, body};
use super::regions::Regions;
use super::too_large;
use super::x86_64::visit_operands;
use crate::elf::file::ElfFile;
use crate::functions::{FunctionIndex, FunctionTable};
use reorder_base::error::Result;

/// How content is divided into pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FingerprintOptions {
    /// Length of a window in bytes, from 1 to 8.
    pub window: u32,
    /// One window in this many is used, chosen by its content, so that equal pieces are chosen everywhere or nowhere.
    pub sampling: u32,
}

impl Default for FingerprintOptions {
    fn default() -> Self {
        Self { window: 8, sampling: 4 }
    }
}

/// The content of all functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprints {
    /// For each function, the hashes of its windows, ascending, each once.
    pub windows: Rows<u32>,
    /// For each function, a hash of all its bytes.
    pub bodies: Vec<u64>,
}

/// Functions per task.
const CHUNK: usize = 256;

impl Fingerprints {
    /// Reads all functions of `file`.
    ///
    /// # Errors
    /// More hashes than 32-bit positions can tell apart.
    pub fn extract(
        file: &ElfFile<'_>,
        functions: &FunctionTable<'_>,
        options: FingerprintOptions,
    ) -> Result<Self> {
        let regions = Regions::new(file);
        let absolute = regions.is_fixed.then_some(&regions.image);
        let chunks: Vec<Chunk> = (0..functions.len().div_ceil(CHUNK))
            .into_par_iter()
            .map(|chunk| {
                let mut found = Chunk::default();
                let mut masked = Vec::new();
                for index in chunk * CHUNK..functions.len().min((chunk + 1) * CHUNK) {
                    let Body { start, bytes, .. } = body(&regions, functions, FunctionIndex(index as u32));
                    masked.clear();
                    masked.extend_from_slice(bytes);
                    visit_operands(bytes, start, absolute, |operand| masked[operand.bytes].fill(0));
                    found.push(&masked, options);
                }
                found
            })
            .collect();
        let total = chunks.iter().map(|chunk| chunk.hashes.len()).sum();
        let mut windows = Rows::with_capacity(functions.len(), total);
        let mut bodies = Vec::with_capacity(functions.len());
        for chunk in chunks {
            bodies.extend_from_slice(&chunk.bodies);
            let mut start = 0;
            for end in chunk.ends {
                windows.push(chunk.hashes[start..end].iter().copied()).map_err(|TooManyItems| too_large())?;
                start = end;
            }
        }
        Ok(Self { windows, bodies })
    }
}

/// The fingerprints of a run of functions.
#[derive(Default)]
struct Chunk {
    hashes: Vec<u32>,
    /// Where each function's hashes end.
    ends: Vec<usize>,
    bodies: Vec<u64>,
}

impl Chunk {
    fn push(&mut self, masked: &[u8], options: FingerprintOptions) {
        let start = self.hashes.len();
        let windows = window_hashes(masked, options.window);
        self.hashes.extend(windows.filter(|hash| hash % options.sampling.max(1) == 0));
        self.hashes[start..].sort_unstable();
        let mut kept = start;
        for position in start..self.hashes.len() {
            if position == start || self.hashes[position] != self.hashes[kept - 1] {
                self.hashes[kept] = self.hashes[position];
                kept += 1;
            }
        }
        self.hashes.truncate(kept);
        self.ends.push(kept);
        self.bodies.push(body_hash(masked));
    }
}

/// Odd, with well-distributed bits: from the golden ratio.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash of each run of `window` bytes.
fn window_hashes(bytes: &[u8], window: u32) -> impl Iterator<Item = u32> {
    let window = window.clamp(1, 8);
    let shift = 8 * (window - 1);
    let rolled = bytes.iter().scan(0u64, move |word, &byte| {
        *word = *word >> 8 | u64::from(byte) << shift;
        Some(*word)
    });
    rolled.skip(window as usize - 1).map(|word| {
        let product = u128::from(word) * u128::from(MULTIPLIER);
        let folded = product as u64 ^ (product >> 64) as u64;
        (folded >> 32) as u32 ^ folded as u32
    })
}

/// A hash of all bytes and their count.
fn body_hash(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let product =
            u128::from(hash ^ u64::from_le_bytes(word)) * u128::from(MULTIPLIER) + u128::from(MULTIPLIER);
        hash = (product as u64 ^ (product >> 64) as u64).rotate_left(29);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_what_they_contain() {
        let hashes = |bytes: &[u8], window| window_hashes(bytes, window).collect::<Vec<_>>();
        let twice = hashes(b"abcdXabcd", 4);
        assert_eq!(twice.len(), 6);
        assert_eq!(twice[0], twice[5]);
        assert_eq!(twice[..5].iter().collect::<std::collections::BTreeSet<_>>().len(), 5);
        assert!(hashes(b"abc", 4).is_empty());
        assert_eq!(hashes(b"abcdefgh", 8).len(), 1);
    }

    #[test]
    fn a_function_keeps_each_sampled_hash_once_and_in_order() {
        let mut chunk = Chunk::default();
        let bytes: Vec<u8> = (0..4000u32).map(|index| (index * index / 8) as u8).collect();
        let all = FingerprintOptions { sampling: 1, ..FingerprintOptions::default() };
        for options in [all, FingerprintOptions::default()] {
            chunk.push(&[&bytes[..], &bytes[..]].concat(), options);
        }
        let (every, sampled) = chunk.hashes.split_at(chunk.ends[0]);
        assert!(every.is_sorted_by(|left, right| left < right));
        let expected: Vec<u32> = every.iter().copied().filter(|hash| hash % 4 == 0).collect();
        assert_eq!(sampled, expected);
        assert!(!sampled.is_empty());
        assert_eq!(chunk.bodies[0], chunk.bodies[1]);
        assert_ne!(body_hash(b"a"), body_hash(b"a\0"));
    }
}
