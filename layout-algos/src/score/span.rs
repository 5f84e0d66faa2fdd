//! Where functions lie.

use crate::ids::PageNumber;
use crate::order::FunctionOrder;

/// The addresses of one function: from `start` up to, not including, `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
}

impl Span {
    /// The pages of `page_size` bytes that the span touches, ascending.
    pub fn pages(self, page_size: u64) -> impl Iterator<Item = PageNumber> {
        let first = self.start / page_size;
        let end = if self.start < self.end { (self.end - 1) / page_size + 1 } else { first };
        (first..end).map(PageNumber)
    }
}

/// The spans of functions laid out one after the other from address 0, each start a multiple of `alignment`; by
/// function. For comparing orders without an image.
#[must_use]
pub fn packed(sizes: &[u64], order: &FunctionOrder, alignment: u64) -> Vec<Span> {
    let mut spans = vec![Span { start: 0, end: 0 }; sizes.len()];
    let mut cursor = 0u64;
    for function in order.iter() {
        let start = cursor.next_multiple_of(alignment.max(1));
        cursor = start + sizes[function.index()];
        spans[function.index()] = Span { start, end: cursor };
    }
    spans
}
