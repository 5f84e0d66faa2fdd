//! `__unwind_info`: how to unwind each function, in one word each, or where its entry of `__eh_frame` is.
//!
//! Source: `mach-o/compact_unwind_encoding.h`, and how LLVM's libunwind searches it.

mod read;

pub use read::Place;

use std::ops::Range;

use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// The number before a page of entries with whole encodings.
pub const REGULAR_PAGE: u32 = 2;
/// The number before a page of entries with indices of encodings.
pub const COMPRESSED_PAGE: u32 = 3;
/// An encoding's bit: the function has an exception table.
pub const HAS_EXCEPTION_TABLE: u32 = 0x4000_0000;
const MODE: u32 = 0x0f00_0000;

/// A range of code with one encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindEntry {
    /// The first address.
    pub start: Address,
    /// The encoding; 0 for none.
    pub encoding: u32,
}

/// The table, expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwindInfo {
    /// The processor, which decides what encodings mean.
    pub processor: Processor,
    /// The address of the headers, to which the table is relative.
    pub base: Address,
    /// The section's first address.
    pub section: Address,
    /// The section's bytes.
    pub size: u64,
    /// Encodings that the pages share.
    pub common_encodings: Vec<u32>,
    /// Distances of the pointers to personality routines from the headers, at most three.
    pub personalities: Vec<u32>,
    /// By start; no two have the same start.
    pub entries: Vec<UnwindEntry>,
    /// The end of the last entry.
    pub end: Address,
    /// Function and its exception table, by function.
    pub exception_tables: Vec<(Address, Address)>,
}

impl UnwindInfo {
    /// The encoding that holds at `address`; 0 before the first entry and after the last.
    #[must_use]
    pub fn encoding_at(&self, address: Address) -> u32 {
        self.entry_at(address).map_or(0, |index| self.entries[index].encoding)
    }

    /// The entry that holds at `address`.
    #[must_use]
    pub fn entry_at(&self, address: Address) -> Option<usize> {
        let after = self.entries.partition_point(|entry| entry.start <= address);
        after.checked_sub(1).filter(|_| address < self.end)
    }

    /// The exception table of the function that starts at `start`.
    #[must_use]
    pub fn exception_table_at(&self, start: Address) -> Option<Address> {
        let found = self.exception_tables.binary_search_by_key(&start, |(function, _)| *function);
        found.ok().map(|index| self.exception_tables[index].1)
    }

    /// Where the entry at `index` ends.
    #[must_use]
    pub(crate) fn entry_end(&self, index: usize) -> Address {
        self.entries.get(index + 1).map_or(self.end, |next| next.start)
    }

    /// Ranges whose bytes must keep their distances, because an exception table or the size of a frame is found from the
    /// range's start.
    pub fn bound_ranges(&self) -> impl Iterator<Item = Range<Address>> {
        self.ranges(|encoding| self.is_bound_to_start(encoding))
    }

    /// The ranges of the entries that refer to `__eh_frame`; the last of them may end after the code.
    pub(crate) fn dwarf_ranges(&self) -> impl Iterator<Item = Range<Address>> {
        self.ranges(|encoding| is_dwarf(self.processor, encoding))
    }

    fn ranges(&self, is_wanted: impl Fn(u32) -> bool) -> impl Iterator<Item = Range<Address>> {
        let range = move |(index, entry): (usize, &UnwindEntry)| {
            is_wanted(entry.encoding).then(|| entry.start..self.entry_end(index))
        };
        self.entries.iter().enumerate().filter_map(range)
    }

    /// Whether the encoding depends on the distance from the function's start: atoms under one such entry must keep their
    /// distances.
    #[must_use]
    pub fn is_bound_to_start(&self, encoding: u32) -> bool {
        encoding & HAS_EXCEPTION_TABLE != 0 || is_stack_indirect(self.processor, encoding)
    }
}

/// Whether the encoding refers to an entry of `__eh_frame`, by its distance from that section's start.
#[must_use]
pub fn is_dwarf(processor: Processor, encoding: u32) -> bool {
    encoding & MODE
        == match processor {
            Processor::Aarch64 => 0x0300_0000,
            Processor::X86_64 | Processor::Other => 0x0400_0000,
        }
}

/// Whether the frame's size is in an instruction that is found by its distance from the function's start.
#[must_use]
pub(crate) fn is_stack_indirect(processor: Processor, encoding: u32) -> bool {
    processor == Processor::X86_64 && encoding & MODE == 0x0300_0000
}
