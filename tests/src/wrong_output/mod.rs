//! Correct outputs, made wrong in one place: what a defect of the writer could do, one kind after the other.
//!
//! In: an image, its permuted copy, a kind and a number. Out: a copy that differs from the correct one, the same for the same
//! number. The places for a kind are read from both images with `object` and `iced-x86`, without code of the verifier.

mod code;
mod excuse;
mod kind;

pub use kind::Kind;

use std::ops::Range;

use object::elf::{EM_AARCH64, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS, SHT_RELA};
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{LittleEndian, Object, ObjectSection, ObjectSymbol, SectionFlags, SymbolKind};

use crate::change::{add, flip};
use crate::mutation_table::Original;
use crate::random::Random;
use code::Branch;

/// One section of the images, at the same place in both.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    address: u64,
    bytes: Range<usize>,
    is_code: bool,
    is_writable: bool,
    is_loaded: bool,
    kind: u32,
}

/// A function of the permuted image: bytes in the file, and its address.
#[derive(Clone, Debug)]
struct Code {
    address: u64,
    bytes: Range<usize>,
}

/// A correct output.
#[derive(Clone, Debug)]
pub struct CorrectOutput {
    name: String,
    old: Vec<u8>,
    /// Its permuted copy.
    new: Vec<u8>,
    parts: Vec<Part>,
    /// By address.
    functions: Vec<Code>,
    /// Words of tables: changed, and at places that no relocation names.
    table_words: Vec<usize>,
    is_arm: bool,
}

impl CorrectOutput {
    /// Finds the places that can be made wrong.
    ///
    /// # Errors
    /// When `new` is not an ELF image of 64 bits.
    pub fn new(name: impl Into<String>, old: Vec<u8>, new: Vec<u8>) -> object::Result<Self> {
        let file = ElfFile64::<LittleEndian>::parse(&*new)?;
        let mut parts = Vec::new();
        for section in file.sections() {
            let header = section.elf_section_header();
            let SectionFlags::Elf { sh_flags: flags, .. } = section.flags() else { continue };
            let Some((offset, size)) =
                section.file_range().filter(|_| header.sh_type(LittleEndian) != SHT_NOBITS)
            else {
                continue;
            };
            let has = |flag| flags.contains(flag);
            parts.push(Part {
                name: section.name().unwrap_or_default().to_owned(),
                address: section.address(),
                bytes: offset as usize..(offset + size) as usize,
                is_code: has(SHF_EXECINSTR),
                is_writable: has(SHF_WRITE),
                is_loaded: has(SHF_ALLOC),
                kind: header.sh_type(LittleEndian).0,
            });
        }
        let in_file = |address: u64| {
            let part = parts.iter().find(|part| {
                part.is_code && (part.address..part.address + part.bytes.len() as u64).contains(&address)
            })?;
            Some(part.bytes.start + (address - part.address) as usize)
        };
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let sized = symbols.filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
        let mut functions: Vec<Code> = sized
            .filter_map(|symbol| {
                let start = in_file(symbol.address())?;
                Some(Code { address: symbol.address(), bytes: start..start + symbol.size() as usize })
            })
            .collect();
        functions.sort_unstable_by_key(|function| (function.address, function.bytes.end));
        functions.dedup_by_key(|function| function.address);
        let is_arm = file.elf_header().e_machine(LittleEndian) == EM_AARCH64;
        let mut output = Self {
            name: name.into(),
            old,
            new: new.clone(),
            parts,
            functions,
            table_words: Vec::new(),
            is_arm,
        };
        let constants = output.parts.iter().filter(|part| part.name.starts_with(".rodata"));
        let words = constants.flat_map(|part| part.bytes.clone().step_by(4));
        output.table_words =
            words.filter(|&at| output.old.get(at..at + 4) != output.new.get(at..at + 4)).collect();
        Ok(output)
    }

    fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }

    fn flip_in(&self, bytes: &mut [u8], random: &mut Random, is_meant: impl Fn(&Part) -> bool) -> Option<()> {
        let parts: Vec<&Part> = self.parts.iter().filter(|part| is_meant(part)).collect();
        flip(bytes, random.of(&parts)?.bytes.clone(), random)
    }

    /// Adds to the field at `within` of an entry of `size` bytes that relocation changed, or of any other.
    fn change_word(
        &self,
        bytes: &mut [u8],
        random: &mut Random,
        name: &str,
        size: usize,
        within: usize,
    ) -> Option<()> {
        let part = self.part(name)?;
        let fields: Vec<usize> = part.bytes.clone().step_by(size).map(|entry| entry + within).collect();
        let changed: Vec<usize> = fields
            .iter()
            .copied()
            .filter(|&at| self.old.get(at..at + 8) != self.new.get(at..at + 8))
            .collect();
        let is_changed = random.below(4) > 0 && !changed.is_empty();
        let at = *random.of(if is_changed { &changed } else { &fields })?;
        match random.below(3) {
            // The address of another function.
            0 => {
                let function = random.of(&self.functions)?;
                bytes.get_mut(at..at + 8)?.copy_from_slice(&function.address.to_le_bytes());
            }
            1 => {
                let old = self.old.get(at..at + 8)?.to_vec();
                bytes.get_mut(at..at + 8)?.copy_from_slice(&old);
            }
            _ => add(bytes, at, 8, 1 + random.below(64) as u64)?,
        }
        Some(())
    }
}

impl Original for CorrectOutput {
    type Kind = Kind;
    const KINDS: &'static [Kind] = &Kind::ALL;

    fn name(&self) -> &str {
        &self.name
    }

    fn pair(&self) -> (&[u8], &[u8]) {
        (&self.old, &self.new)
    }

    fn wrong(&self, kind: Kind, number: u64) -> Option<Vec<u8>> {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ kind as u64);
        let mut bytes = self.new.clone();
        match kind {
            Kind::CallTarget => self.redirect(&mut bytes, &mut random, Branch::Call)?,
            Kind::JumpTarget => self.redirect(&mut bytes, &mut random, Branch::Jump)?,
            Kind::DataReference => self.redirect(&mut bytes, &mut random, Branch::Data)?,
            Kind::FunctionsSwapped => self.swap_functions(&mut bytes, &mut random)?,
            Kind::FunctionByte => {
                let function = random.of(&self.functions)?;
                flip(&mut bytes, function.bytes.clone(), &mut random)?;
            }
            Kind::StaleTableWord => {
                let at = *random.of(&self.table_words)?;
                let old = self.old.get(at..at + 4)?.to_vec();
                bytes.get_mut(at..at + 4)?.copy_from_slice(&old);
            }
            Kind::WrongTableWord => {
                let (at, other) = (*random.of(&self.table_words)?, *random.of(&self.table_words)?);
                let word = self.new.get(other..other + 4)?.to_vec();
                bytes.get_mut(at..at + 4)?.copy_from_slice(&word);
            }
            Kind::WordAfterTable => {
                let last = |at: &&usize| !self.table_words.contains(&(**at + 4));
                let ends: Vec<usize> = self.table_words.iter().filter(last).copied().collect();
                let end = *random.of(&ends)? + 4;
                let word = bytes.get_mut(end..end + 4)?;
                let value = u32::from_le_bytes(word.try_into().ok()?);
                word.copy_from_slice(&value.wrapping_add(1 + random.below(64) as u32).to_le_bytes());
            }
            Kind::ConstantData => {
                self.flip_in(&mut bytes, &mut random, |part| part.name.starts_with(".rodata"))?
            }
            Kind::WritableData => self.flip_in(&mut bytes, &mut random, |part| {
                part.is_writable
                    && matches!(part.name.as_str(), ".data" | ".data.rel.ro" | ".got" | ".got.plt")
            })?,
            Kind::RelocationAddend => self.change_word(&mut bytes, &mut random, ".rela.dyn", 24, 16)?,
            Kind::RelocatedWord => {
                self.change_word(&mut bytes, &mut random, ".data.rel.ro", 8, 0)
                    .or_else(|| self.change_word(&mut bytes, &mut random, ".data", 8, 0))?;
            }
            Kind::Symbol => self.change_word(&mut bytes, &mut random, ".symtab", 24, 8)?,
            Kind::DynamicSymbol => self.change_word(&mut bytes, &mut random, ".dynsym", 24, 8)?,
            Kind::UnwindEntry => {
                // The starts are what relocation changes.
                let part = self.part(".eh_frame")?;
                let changed: Vec<usize> = part
                    .bytes
                    .clone()
                    .step_by(4)
                    .filter(|&at| self.old[at..at + 4] != self.new[at..at + 4])
                    .collect();
                let at = *random.of(&changed)?;
                add(&mut bytes, at, 4, 1 + random.below(4096) as u64)?;
            }
            Kind::UnwindInstructions => {
                self.flip_in(&mut bytes, &mut random, |part| part.name == ".eh_frame")?
            }
            Kind::SearchRow => {
                let part = self.part(".eh_frame_hdr")?;
                let rows = part.bytes.len().checked_sub(12)? / 8;
                let row = |number: usize| part.bytes.start + 12 + number * 8;
                let (one, other) = (row(random.below(rows.max(1))), row(random.below(rows.max(1))));
                if random.below(2) == 0 {
                    let (left, right) = (bytes[one..one + 8].to_vec(), bytes[other..other + 8].to_vec());
                    bytes[one..one + 8].copy_from_slice(&right);
                    bytes[other..other + 8].copy_from_slice(&left);
                } else {
                    add(&mut bytes, one + random.below(2) * 4, 4, 1 + random.below(64) as u64)?;
                }
            }
            Kind::ExceptionTable => {
                self.flip_in(&mut bytes, &mut random, |part| part.name.starts_with(".gcc_except_table"))?;
            }
            Kind::Padding => {
                let holes = self.holes();
                let hole = random.of(&holes)?;
                let at = hole.start + random.below(hole.len());
                bytes[at] = [0x4c, 0x90, 0x00, 0xc3, 0xe9][random.below(5)];
            }
            Kind::EntryPoint => {
                let function = random.of(&self.functions)?;
                bytes.get_mut(0x18..0x20)?.copy_from_slice(&function.address.to_le_bytes());
            }
            Kind::BuildId => {
                self.flip_in(&mut bytes, &mut random, |part| part.name == ".note.gnu.build-id")?
            }
            Kind::KeptRelocation => {
                let kept: Vec<&Part> =
                    self.parts.iter().filter(|part| part.kind == SHT_RELA.0 && !part.is_loaded).collect();
                let part = random.of(&kept)?;
                let entry = part.bytes.start + random.below(part.bytes.len() / 24) * 24;
                add(&mut bytes, entry + [0, 16][random.below(2)], 8, 1 + random.below(64) as u64)?;
            }
            Kind::InitialiserArray => self.flip_in(&mut bytes, &mut random, |part| {
                matches!(part.name.as_str(), ".init_array" | ".fini_array")
            })?,
            Kind::Dynamic => self.flip_in(&mut bytes, &mut random, |part| part.name == ".dynamic")?,
            Kind::Probe => self.flip_in(&mut bytes, &mut random, |part| part.name == ".note.stapsdt")?,
            Kind::Headers => {
                let end = 64 + usize::from(u16::from_le_bytes([self.new[0x38], self.new[0x39]])) * 56;
                flip(&mut bytes, 0..end, &mut random)?;
            }
        }
        (bytes != self.new).then_some(bytes)
    }

    fn excuse(&self, wrong: &[u8]) -> Option<&'static str> {
        self.excuse_for(wrong)
    }
}
