//! Which code bytes start an instruction: one bit a byte of code, set from any thread.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::elf::code::CodeOffset;

/// A bit per code byte.
pub struct Boundaries {
    words: Vec<AtomicU64>,
}

impl Boundaries {
    /// No boundaries, for `span` bytes of code.
    pub fn new(span: usize) -> Self {
        Self { words: (0..span.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// An instruction starts at `offset`.
    pub fn mark(&self, offset: CodeOffset) {
        let index = offset.0 as usize;
        // Relaxed suffices: bits are only read after the threads that set them were joined.
        self.words[index / 64].fetch_or(1 << (index % 64), Ordering::Relaxed);
    }

    /// Whether an instruction starts at `offset`.
    pub(crate) fn is_marked(&self, offset: CodeOffset) -> bool {
        let index = offset.0 as usize;
        self.words.get(index / 64).is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (index % 64)) != 0)
    }
}
