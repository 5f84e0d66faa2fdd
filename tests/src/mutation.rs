//! Deterministic damage to ELF images: the file with number N of a seed image is always the same.
//!
//! In: a healthy image and a number. Out: a damaged copy. Three families: bytes flipped anywhere, fields of headers
//! and tables overwritten with values that readers tend to get wrong, and truncations. Fields are found by reading the
//! healthy image, so that damage reaches the code behind the first check.

use std::ops::Range;

use object::LittleEndian;
use object::elf::{FileHeader64, SHT_NOBITS, SectionHeader64};
use object::read::elf::{FileHeader, SectionHeader};

/// A table of the image whose entries have fields of known width.
#[derive(Clone, Debug)]
struct FieldRegion {
    /// Where the table lies in the file.
    bytes: Range<usize>,
    /// Width of the fields to overwrite.
    widths: &'static [usize],
}

/// A healthy image and where its fields are.
#[derive(Clone, Debug)]
pub struct SeedImage {
    /// Shown in failures.
    pub name: String,
    /// The healthy file.
    pub bytes: Vec<u8>,
    regions: Vec<FieldRegion>,
}

impl SeedImage {
    /// Finds the headers and tables of `bytes`.
    ///
    /// # Errors
    /// When the image is not healthy.
    pub fn new(name: impl Into<String>, bytes: Vec<u8>) -> object::Result<Self> {
        let header = FileHeader64::<LittleEndian>::parse(&*bytes)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, &*bytes)?;
        let mut regions = vec![
            FieldRegion { bytes: 0..64, widths: &[1, 2, 8] },
            table(header.e_phoff.get(endian), usize::from(header.e_phnum.get(endian)) * 56, &[4, 8]),
            table(header.e_shoff.get(endian), sections.len() * 64, &[4, 8]),
        ];
        for section in sections.iter() {
            let name = sections.section_name(endian, section)?;
            let kind: &SectionHeader64<LittleEndian> = section;
            if kind.sh_type(endian) == SHT_NOBITS {
                continue;
            }
            if let Some(widths) = field_widths(name) {
                regions.push(table(kind.sh_offset(endian), kind.sh_size(endian) as usize, widths));
            }
        }
        regions.retain(|region| region.bytes.len() >= 8 && region.bytes.end <= bytes.len());
        Ok(Self { name: name.into(), bytes, regions })
    }

    /// Damaged copy number `number`.
    pub fn damaged(&self, number: u64) -> Vec<u8> {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.bytes.len() as u64);
        let mut bytes = self.bytes.clone();
        match random.below(10) {
            0 => bytes.truncate(self.truncated_length(&mut random)),
            1 | 2 => {
                for _ in 0..=random.below(8) {
                    let position = random.below(bytes.len());
                    bytes[position] ^= 1 << random.below(8);
                }
            }
            _ => {
                for _ in 0..=random.below(3) {
                    self.overwrite_field(&mut bytes, &mut random);
                }
            }
        }
        bytes
    }

    /// Any length, with those just inside and outside of tables preferred.
    fn truncated_length(&self, random: &mut Random) -> usize {
        if random.below(2) == 0 {
            return random.below(self.bytes.len());
        }
        let region = &self.regions[random.below(self.regions.len())];
        let edge = if random.below(2) == 0 { region.bytes.start } else { region.bytes.end };
        (edge + random.below(17)).saturating_sub(8).min(self.bytes.len() - 1)
    }

    fn overwrite_field(&self, bytes: &mut [u8], random: &mut Random) {
        let region = &self.regions[random.below(self.regions.len())];
        let width = region.widths[random.below(region.widths.len())];
        let slots = region.bytes.len() / width;
        let position = region.bytes.start + random.below(slots) * width;
        let field = &mut bytes[position..position + width];
        let mut old = [0; 8];
        old[..width].copy_from_slice(field);
        let value = self.nasty_value(u64::from_le_bytes(old), random);
        field.copy_from_slice(&value.to_le_bytes()[..width]);
    }

    /// Values at the edges of types, sizes and other fields.
    fn nasty_value(&self, old: u64, random: &mut Random) -> u64 {
        let size = self.bytes.len() as u64;
        match random.below(16) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => u64::MAX >> 1,
            4 => 1 << 63,
            5 => u64::from(u32::MAX),
            6 => 1 << 31,
            7 => size,
            8 => size - 1,
            9 => u64::MAX - size,
            10 => old.wrapping_add(1),
            11 => old.wrapping_sub(1),
            12 => old.wrapping_add(random.below(64) as u64),
            13 => old.wrapping_sub(random.below(4096) as u64),
            14 => old.wrapping_mul(2),
            _ => random.next(),
        }
    }
}

fn table(offset: u64, size: usize, widths: &'static [usize]) -> FieldRegion {
    let start = offset as usize;
    FieldRegion { bytes: start..start.saturating_add(size), widths }
}

/// Tables whose contents decide what is moved and patched; the others get damaged by flipped bytes.
fn field_widths(section: &[u8]) -> Option<&'static [usize]> {
    match section {
        b".symtab" | b".dynsym" => Some(&[1, 2, 4, 8]),
        b".rela.dyn" | b".rela.plt" | b".relr.dyn" | b".rela.text" | b".dynamic" | b".init_array"
        | b".got" => Some(&[4, 8]),
        b".eh_frame" | b".eh_frame_hdr" | b".rodata" | b".note.stapsdt" | b".note.gnu.build-id" => {
            Some(&[1, 4])
        }
        b".gcc_except_table" | b".text" | b".plt" => Some(&[1, 2, 4]),
        _ => None,
    }
}

/// SplitMix64: enough for damage, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is not zero.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
