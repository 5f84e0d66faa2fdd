//! Memory models: which pages a fault loads.

use super::present_pages::PresentPages;
use super::{FaultCurve, Span};

/// A model of demand paging. Sizes are in bytes and powers of two; pages are never evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultModel {
    /// Each page faults once: cold files with read-ahead switched off; processors with larger pages.
    Pages {
        /// Bytes per page.
        size: u64,
    },
    /// The file is in memory, and a fault maps the aligned block around the page: a warm start on Linux, whose
    /// `fault_around_bytes` is 64 KiB. The load bias is taken to be a multiple of the block.
    FaultAround {
        /// Bytes per aligned block.
        block: u64,
    },
    /// The file is not in memory, and a fault reads a window around the page: a cold start on Linux, whose window is
    /// the device's `read_ahead_kb`, mostly 128 KiB. Up to version 6.16 half of it lies before the page; later ones
    /// read code from the page onwards. Further adaptations of the kernel (giving up after many misses) are not
    /// modelled.
    ReadAround {
        /// Bytes per page.
        page: u64,
        /// Bytes per window.
        window: u64,
        /// Bytes of the window that lie before the page: a multiple of the page, less than the window.
        before: u64,
    },
}

impl FaultModel {
    /// The most bytes that one fault can make present.
    #[must_use]
    pub fn bytes_per_fault(self) -> u64 {
        match self {
            Self::Pages { size } => size,
            Self::FaultAround { block } => block,
            Self::ReadAround { page, window, .. } => window.max(page),
        }
    }

    /// Faults of a run that executes the functions at `spans` one after the other, beginning with no page mapped.
    ///
    /// Time is in proportion to the pages touched, and memory to them or to one bit for each page from the lowest to the
    /// highest, at most 128 KiB.
    #[must_use]
    pub fn faults(self, spans: impl IntoIterator<Item = Span>) -> FaultCurve {
        let spans: Vec<Span> = spans.into_iter().collect();
        let page_size = match self {
            Self::Pages { size } | Self::FaultAround { block: size } => size.max(1),
            Self::ReadAround { page, .. } => page.max(1),
        };
        let mut present = PresentPages::none_of(&spans, page_size);
        let mut faults = 0;
        let after_each = spans.into_iter().map(|span| {
            match self {
                Self::Pages { .. } | Self::FaultAround { .. } => {
                    faults += span.pages(page_size).filter(|page| present.insert(page.0)).count() as u64;
                }
                Self::ReadAround { window, before, .. } => {
                    let window_pages = (window / page_size).max(1);
                    for page in span.pages(page_size) {
                        if !present.contains(page.0) {
                            faults += 1;
                            let first = page.0.saturating_sub(before / page_size);
                            for read in first..first.saturating_add(window_pages) {
                                present.insert(read);
                            }
                        }
                    }
                }
            }
            faults
        });
        FaultCurve::new(after_each.collect())
    }
}
