//! Landing pads: where the unwinder resumes control in AArch64 functions, with the registers as a call left them.
//!
//! Takes the unwind entries and their exception tables; functions whose table is not understood are marked as unknown.

use std::ops::Range;

use super::unwind_walk::{OMITTED, UnwindEntries, UnwindEntry};
use super::view::ElfView;
use crate::exception_table::{CallSite, read_table};
use crate::processor::Processor;
use reorder_base::address::Address;

/// The landing pads of one image.
#[derive(Debug, Default)]
pub(crate) struct LandingPads {
    /// Ascending; plain numbers, since exception tables of both images are read by the same code.
    pads: Vec<u64>,
    /// Functions whose pads are not known, by start.
    unknown: Vec<Range<u64>>,
}

impl LandingPads {
    /// The pads of all functions of `image`; empty for other processors than AArch64, whose checks need none.
    pub(crate) fn of(image: &ElfView<'_>) -> Self {
        let mut found = Self::default();
        let section = image.section(b".eh_frame").filter(|_| image.processor == Processor::Aarch64);
        // Functions do not share tables, so no image has more call sites than bytes.
        let mut budget = image.bytes.len();
        for entry in section.into_iter().flat_map(UnwindEntries::of).map_while(Result::ok) {
            let Some(table) = entry.exception_table else { continue };
            let mut sites = Vec::new();
            let known = image
                .section_at(table)
                .and_then(|section| section.bytes.get((table - section.address) as usize..))
                .and_then(|bytes| read_table(bytes, entry.start, &mut budget, &mut sites));
            found.pads.extend(sites.iter().map(|site| site.pad));
            if known.is_none() {
                found.unknown.push(entry.start..entry.start.saturating_add(entry.size));
            }
        }
        found.pads.sort_unstable();
        found.pads.dedup();
        found.pads.shrink_to_fit();
        found.unknown.sort_unstable_by_key(|range| range.start);
        found
    }

    /// Whether an exception may be caught at `address`; `None` when the function's table is not understood.
    pub(crate) fn contains(&self, address: Address) -> Option<bool> {
        let after = self.unknown.partition_point(|range| range.start <= address.0);
        let is_unknown = self.unknown[..after].last().is_some_and(|range| address.0 < range.end);
        (!is_unknown).then(|| self.pads.binary_search(&address.0).is_ok())
    }
}

/// Where the exceptions of one function are caught.
pub(crate) enum TablePads {
    /// The call sites with pads, which the table states relative to the function's start.
    FromStart(Vec<CallSite>),
    /// The table states its pads relative to a base of its own.
    FromBase,
}

/// The pads that the exception table at `table` states for the function of `entry`; `None` when it is not understood, or
/// longer than the `budget` that all tables of an image share.
pub(crate) fn pads_of(
    image: &ElfView<'_>,
    table: u64,
    entry: &UnwindEntry,
    budget: &mut usize,
) -> Option<TablePads> {
    let section = image.section_at(table)?;
    let bytes = section.bytes.get((table - section.address) as usize..)?;
    if *bytes.first()? != OMITTED {
        return Some(TablePads::FromBase);
    }
    let mut sites = Vec::new();
    read_table(bytes, entry.start, budget, &mut sites).map(|()| TablePads::FromStart(sites))
}
