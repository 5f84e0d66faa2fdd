//! Where sections of one kind are in memory, for many questions about addresses.

use std::ops::Range;

use super::file::ElfFile;
use super::section::Section;
use reorder_base::address::Address;

/// The addresses of some sections that are loaded and have bytes. No two of these share a byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedRanges(Vec<Range<Address>>);

impl LoadedRanges {
    /// Of the sections that are `wanted`.
    #[must_use]
    pub fn of(file: &ElfFile<'_>, wanted: impl Fn(&Section<'_>) -> bool) -> Self {
        let is_wanted =
            |section: &&Section<'_>| section.is_loaded() && section.has_bytes() && wanted(section);
        let ranges = file.sections.iter().filter(is_wanted).map(|section| section.address..section.end());
        let mut ranges: Vec<Range<Address>> = ranges.filter(|range| !range.is_empty()).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        Self(ranges)
    }

    /// Of all code.
    #[must_use]
    pub fn of_code(file: &ElfFile<'_>) -> Self {
        Self::of(file, |section| section.is_executable())
    }

    /// Whether the byte at `address` is in one of them.
    #[must_use]
    pub fn contain(&self, address: Address) -> bool {
        let after = self.0.partition_point(|range| range.start <= address);
        self.0[..after].last().is_some_and(|range| address < range.end)
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = &Range<Address>> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, LoadedRanges};
    use crate::elf::file::ElfFile;

    #[test]
    fn addresses_are_found_as_by_asking_each_section() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = ElfFile::parse(&bytes).unwrap();
        let code = LoadedRanges::of_code(&file);
        assert!(code.iter().count() >= 3, "{code:?}");
        let ends = file.sections.iter().flat_map(|section| [section.address, section.end()]);
        for address in ends.flat_map(|end| [end.0.saturating_sub(1), end.0, end.0 + 1].map(Address)) {
            let mut sections = file.sections.iter().filter(|section| section.is_executable());
            assert_eq!(code.contain(address), sections.any(|section| section.contains(address)), "{address}");
        }
    }
}
