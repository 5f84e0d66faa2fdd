//! The fields of all instructions that a move may change, packed: large images have millions.

use std::ops::Range;

use crate::code_reference::AtomReferences;
use crate::decode::x86_64::Field;

/// Fields by block, in the form of the processor.
pub enum CodeFields {
    /// Distances whose target leaves the block.
    X86_64(ByBlock<Field>),
    /// References out of the block, and those to a place in it that hold a page.
    Aarch64(AtomReferences),
}

/// Some items of each block, in one list.
#[derive(Clone, Debug)]
pub struct ByBlock<T> {
    items: Vec<T>,
    /// Where the items of each block start, and where those of the last end.
    starts: Vec<u32>,
}

impl<T> ByBlock<T> {
    /// Takes the items of each block, in order.
    pub(super) fn new(blocks: impl ExactSizeIterator<Item = Vec<T>>) -> Self {
        let mut starts = Vec::with_capacity(blocks.len() + 1);
        let mut items = Vec::new();
        starts.push(0);
        for block in blocks {
            items.extend(block);
            starts.push(items.len() as u32);
        }
        items.shrink_to_fit();
        Self { items, starts }
    }

    /// The items of a range of blocks.
    #[must_use]
    pub fn of(&self, blocks: Range<u32>) -> &[T] {
        let (first, last) = (self.starts[blocks.start as usize], self.starts[blocks.end as usize]);
        &self.items[first as usize..last as usize]
    }
}
