//! Pages that are present during a replay.

use std::collections::HashSet;

use super::Span;

/// Pages between the lowest and the highest one that may be kept as bits: 128 KiB of them, for 4 GiB of text.
/// A single run may touch two functions with any distance between them.
const MAX_BITS: u64 = 1 << 20;

/// Pages that are present, among those that the spans of a run touch.
pub(super) enum PresentPages {
    /// One bit for each page from `first` to `end`.
    Bits { first: u64, end: u64, bits: Vec<u64> },
    /// Pages far apart.
    Set(HashSet<u64>),
}

impl PresentPages {
    /// None yet, with room for the pages of `spans`.
    pub(super) fn none_of(spans: &[Span], page_size: u64) -> Self {
        let first = spans.iter().map(|span| span.start / page_size).min().unwrap_or(0);
        let end = spans.iter().map(|span| span.end.div_ceil(page_size)).max().unwrap_or(0);
        match end.saturating_sub(first) {
            pages @ 0..=MAX_BITS => {
                Self::Bits { first, end, bits: vec![0; pages.div_ceil(u64::from(u64::BITS)) as usize] }
            }
            _ => Self::Set(HashSet::new()),
        }
    }

    /// Makes a page present; whether it was not before. Pages that no span touches are never asked about, and are
    /// not kept.
    pub(super) fn insert(&mut self, page: u64) -> bool {
        match self {
            Self::Bits { first, end, bits } => {
                if !(*first..*end).contains(&page) {
                    return false;
                }
                let (word, bit) = place(page - *first);
                let is_new = bits[word] & bit == 0;
                bits[word] |= bit;
                is_new
            }
            Self::Set(pages) => pages.insert(page),
        }
    }

    /// Whether a page that a span touches is present.
    pub(super) fn contains(&self, page: u64) -> bool {
        match self {
            Self::Bits { first, end, bits } => {
                (*first..*end).contains(&page) && {
                    let (word, bit) = place(page - *first);
                    bits[word] & bit != 0
                }
            }
            Self::Set(pages) => pages.contains(&page),
        }
    }
}

/// The word of a bit, and the bit in it.
fn place(index: u64) -> (usize, u64) {
    ((index / u64::from(u64::BITS)) as usize, 1 << (index % u64::from(u64::BITS)))
}
