//! Numbers in data that may be distances from one function to another.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::OnceLock;

use rayon::prelude::*;

use super::computed_addresses::LONGEST_TABLE;
use crate::address::Address;
use crate::image::code::CodeSpace;
use crate::image::elf::file::ElfFile;
use crate::image::elf::section::Section;

/// The numbers of one image, looked up when they are first asked for.
pub struct StoredDistances<'a, 'data> {
    file: &'a ElfFile<'data>,
    text: Range<Address>,
    /// By width: 1, 2, 4, 8 bytes.
    anywhere: [OnceLock<Vec<u64>>; 4],
}

impl<'a, 'data> StoredDistances<'a, 'data> {
    /// Those of `file`, which lead from one place of `code` to another.
    pub fn new(file: &'a ElfFile<'data>, code: &CodeSpace<'_>) -> Self {
        let start = code.arenas.iter().map(|arena| arena.start).min().unwrap_or(Address(0));
        let end = code.arenas.iter().map(|arena| arena.end).max().unwrap_or(start);
        Self { file, text: start..end, anywhere: Default::default() }
    }

    /// From the first arena to the last.
    pub fn text(&self) -> &Range<Address> {
        &self.text
    }

    /// Numbers of `width` bytes, with and without a sign, at all places from `table` on: records may be packed, and what follows a
    /// table is not known to be none of it.
    pub fn at(&self, table: Address, width: u64) -> BTreeSet<u64> {
        let length = width * LONGEST_TABLE as u64;
        let words = (0..length).map_while(|offset| self.file.bytes_at(table.plus(offset), width));
        words.flat_map(readings).filter(|distance| self.may_lead_to_code(*distance)).collect()
    }

    /// Those of all data, at places that compilers put them to.
    pub fn anywhere(&self, width: u64) -> &[u64] {
        self.anywhere[width.trailing_zeros().min(3) as usize].get_or_init(|| {
            let sections = self.file.sections.iter().filter(|section| may_hold_distances(section));
            let mut found: Vec<u64> = sections
                .flat_map(|section| {
                    let skipped = (section.address.0.wrapping_neg() % width) as usize;
                    let bytes = self.file.section_bytes(section).get(skipped..).unwrap_or(&[]);
                    let words = bytes.par_chunks_exact(width as usize).flat_map_iter(readings);
                    words.filter(|distance| self.may_lead_to_code(*distance)).collect::<Vec<u64>>()
                })
                .collect();
            found.par_sort_unstable();
            found.dedup();
            found
        })
    }

    /// No distance inside the code is longer than the code. Zeros lead to the base itself.
    fn may_lead_to_code(&self, distance: u64) -> bool {
        distance != 0 && (distance as i64).unsigned_abs() < self.text.end.distance_from(self.text.start)
    }
}

/// A number of up to eight bytes, with and without a sign.
fn readings(bytes: &[u8]) -> [u64; 2] {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let (plain, unused) = (u64::from_le_bytes(wide), 64 - 8 * bytes.len() as u32);
    [plain, ((plain << unused) as i64 >> unused) as u64]
}

/// Loaded data whose format is not known word by word.
fn may_hold_distances(section: &Section<'_>) -> bool {
    const KNOWN: [&[u8]; 3] = [b".eh_frame", b".eh_frame_hdr", b".gcc_except_table"];
    section.is_loaded()
        && !section.is_executable()
        && section.kind == object::elf::SHT_PROGBITS.0
        && !KNOWN.contains(&section.name)
}

#[cfg(test)]
mod tests {
    use super::readings;

    #[test]
    fn numbers_are_read_with_and_without_a_sign() {
        assert_eq!(readings(&[0xf0]), [0xf0, (-16_i64) as u64]);
        assert_eq!(readings(&[0xf0, 0xff, 0xff, 0x7f]), [0x7fff_fff0; 2]);
        assert_eq!(readings(&[0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), [(-16_i64) as u64; 2]);
    }
}
