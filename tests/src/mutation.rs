//! Deterministic damage to ELF and Mach-O images: copy number N of a seed image is always the same.
//!
//! In: a sound image and a number, or a list of edits. Out: a damaged copy. A number means bytes flipped anywhere, fields
//! of headers and tables overwritten with values that readers often handle wrongly, or truncation. Edits say which
//! fields get what, in few bytes that a fuzzer can try one by one. Fields are found by reading the sound image, so that
//! damage also reaches code after the first check.

use crate::random::Random;
use std::ops::Range;

use object::LittleEndian;
use object::elf::{FileHeader64, SHT_NOBITS, SectionHeader64};
use object::macho::{LinkeditDataCommand, MachHeader64, S_ZEROFILL, SegmentCommand64, SymtabCommand};
use object::read::elf::{FileHeader, SectionHeader};
use object::read::macho::{LoadCommandVariant, MachHeader, Section, Segment};

/// A table of the image whose entries have fields of known width.
#[derive(Clone, Debug)]
struct FieldRegion {
    /// File offset of the table.
    bytes: Range<usize>,
    /// Width of the fields to overwrite.
    widths: &'static [usize],
}

/// A sound image and where its fields are.
#[derive(Clone, Debug)]
pub struct SeedImage {
    /// Shown in failures.
    pub name: String,
    /// The sound file.
    pub bytes: Vec<u8>,
    regions: Vec<FieldRegion>,
}

impl SeedImage {
    /// Finds the headers and tables of `bytes`.
    ///
    /// # Errors
    /// When the image is not sound.
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
        Ok(Self::with_regions(name, bytes, regions))
    }

    /// Finds the load commands, sections and tables of `bytes`, a thin Mach-O image.
    ///
    /// # Errors
    /// When the image is not sound.
    pub fn macho(name: impl Into<String>, bytes: Vec<u8>) -> object::Result<Self> {
        let header = MachHeader64::<LittleEndian>::parse(&*bytes, 0)?;
        let endian = header.endian()?;
        let mut regions =
            vec![table(0, 32, &[4]), table(32, header.sizeofcmds.get(endian) as usize, &[1, 4, 8])];
        let mut commands = header.load_commands(endian, &*bytes, 0)?;
        while let Some(command) = commands.next()? {
            match command.variant()? {
                LoadCommandVariant::Segment64(segment, sections) => {
                    let segment: &SegmentCommand64<LittleEndian> = segment;
                    for section in segment.sections(endian, sections)? {
                        let is_zeros = section.flags(endian).typ() == S_ZEROFILL;
                        if !is_zeros {
                            let offset = u64::from(section.offset.get(endian));
                            regions.push(table(offset, section.size.get(endian) as usize, &[1, 2, 4, 8]));
                        }
                    }
                }
                LoadCommandVariant::Symtab(symbols) => {
                    let symbols: &SymtabCommand<LittleEndian> = symbols;
                    let size = symbols.nsyms.get(endian) as usize * 16;
                    regions.push(table(u64::from(symbols.symoff.get(endian)), size, &[1, 2, 4, 8]));
                }
                LoadCommandVariant::Dysymtab(symbols) => {
                    let size = symbols.nindirectsyms.get(endian) as usize * 4;
                    regions.push(table(u64::from(symbols.indirectsymoff.get(endian)), size, &[4]));
                }
                LoadCommandVariant::LinkeditData(data) => {
                    let data: &LinkeditDataCommand<LittleEndian> = data;
                    let size = data.datasize.get(endian) as usize;
                    regions.push(table(u64::from(data.dataoff.get(endian)), size, &[1, 2, 4, 8]));
                }
                LoadCommandVariant::DyldInfo(info) => {
                    let parts = [
                        (&info.rebase_off, &info.rebase_size),
                        (&info.bind_off, &info.bind_size),
                        (&info.lazy_bind_off, &info.lazy_bind_size),
                        (&info.export_off, &info.export_size),
                    ];
                    regions.extend(parts.map(|(offset, size)| {
                        table(u64::from(offset.get(endian)), size.get(endian) as usize, &[1])
                    }));
                }
                _ => {}
            }
        }
        Ok(Self::with_regions(name, bytes, regions))
    }

    fn with_regions(name: impl Into<String>, bytes: Vec<u8>, mut regions: Vec<FieldRegion>) -> Self {
        regions.retain(|region| region.bytes.len() >= 8 && region.bytes.end <= bytes.len());
        Self { name: name.into(), bytes, regions }
    }

    /// A copy with the fields changed that `edits` names: [`EDIT_SIZE`] bytes for each, at most [`MAX_EDITS`]; the
    /// rest is ignored. Any bytes are edits.
    pub fn edited(&self, edits: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for edit in edits.chunks_exact(EDIT_SIZE).take(MAX_EDITS) {
            self.edit(&mut bytes, edit);
        }
        bytes
    }

    /// Region, width, two bytes of slot, operation, two bytes of operand.
    fn edit(&self, bytes: &mut [u8], edit: &[u8]) {
        let region = &self.regions[usize::from(edit[0]) % self.regions.len()];
        let width = region.widths[usize::from(edit[1]) % region.widths.len()];
        let slots = region.bytes.len() / width;
        let place = |number: u16| {
            let start = region.bytes.start + usize::from(number) % slots * width;
            start..start + width
        };
        let operand = u16::from_le_bytes([edit[5], edit[6]]);
        let signed = i64::from(operand as i16) as u64;
        let field = place(u16::from_le_bytes([edit[2], edit[3]]));
        let old = number(&bytes[field.clone()]);
        let other = number(&bytes[place(operand)]);
        let new = match edit[4] % 12 {
            0 => u64::from(operand),
            1 => old.wrapping_add(signed),
            2 => old ^ 1 << (operand % 64),
            3 => edge(u64::from(operand), self.bytes.len() as u64),
            4 => other,
            5 => old.wrapping_add(other),
            6 => signed << 16,
            7 => old.wrapping_add(signed.wrapping_mul(4)),
            8 => old & !0xff | u64::from(operand & 0xff),
            9 => old.wrapping_add(signed << 12),
            10 => {
                write_number(&mut bytes[place(operand)], old);
                other
            }
            _ => {
                // A word of any other region, such as an address.
                let region = &self.regions[usize::from(edit[5]) % self.regions.len()];
                let words = region.bytes.len() / 8;
                let start = region.bytes.start + usize::from(edit[6]) % words * 8;
                number(&bytes[start..start + 8])
            }
        };
        write_number(&mut bytes[field], new);
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

    /// Any length, preferably just inside and outside of tables.
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
        let value = self.nasty_value(number(field), random);
        write_number(field, value);
    }

    /// Values at the edges of types, sizes and other fields.
    fn nasty_value(&self, old: u64, random: &mut Random) -> u64 {
        let size = self.bytes.len() as u64;
        match random.below(16) {
            choice @ 0..10 => edge(choice as u64, size),
            10 => old.wrapping_add(1),
            11 => old.wrapping_sub(1),
            12 => old.wrapping_add(random.below(64) as u64),
            13 => old.wrapping_sub(random.below(4096) as u64),
            14 => old.wrapping_mul(2),
            _ => random.next(),
        }
    }
}

/// Bytes of one edit.
pub const EDIT_SIZE: usize = 7;
/// More edits are hardly ever needed to reach a place, and damage too much.
pub const MAX_EDITS: usize = 12;

fn number(field: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..field.len()].copy_from_slice(field);
    u64::from_le_bytes(wide)
}

fn write_number(field: &mut [u8], value: u64) {
    let width = field.len();
    field.copy_from_slice(&value.to_le_bytes()[..width]);
}

/// Values at the edges of types and of a file of `size` bytes.
fn edge(choice: u64, size: u64) -> u64 {
    match choice % 10 {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => u64::MAX >> 1,
        4 => 1 << 63,
        5 => u64::from(u32::MAX),
        6 => 1 << 31,
        7 => size,
        8 => size - 1,
        _ => u64::MAX - size,
    }
}

fn table(offset: u64, size: usize, widths: &'static [usize]) -> FieldRegion {
    let start = offset as usize;
    FieldRegion { bytes: start..start.saturating_add(size), widths }
}

/// Tables whose contents decide what is moved and patched; the others are damaged by flipped bytes.
fn field_widths(section: &[u8]) -> Option<&'static [usize]> {
    match section {
        b".symtab" | b".dynsym" => Some(&[1, 2, 4, 8]),
        b".rela.dyn" | b".rela.plt" | b".relr.dyn" | b".rela.text" | b".dynamic" | b".init_array"
        | b".got" => Some(&[4, 8]),
        b".eh_frame" | b".eh_frame_hdr" | b".rodata" | b".note.stapsdt" | b".note.gnu.build-id" => {
            Some(&[1, 4])
        }
        b".gcc_except_table" | b".text" | b".plt" => Some(&[1, 2, 4]),
        b".data.rel.ro" | b".data" | b".got.plt" | b".rela.eh_frame" | b".rela.rodata" => Some(&[4, 8]),
        _ if section.starts_with(b".debug_") => Some(&[1, 2, 4, 8]),
        _ => None,
    }
}
