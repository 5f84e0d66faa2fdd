//! Words in data that hold addresses of the image.
//!
//! Takes the loader's relocations, those that the linker kept, and, in a program at a fixed address that has neither,
//! the words themselves; gives [`Pointers`] by place. What is malformed or unknown is left out: an order of functions
//! needs no proof, and an image that is refused for relocation can still get one.

use object::LittleEndian;
use object::elf::{FileHeader64, Rela64, Relr64};
use object::pod;
use object::read::elf::RelrIterator;

use super::operand::RelocationMeaning;
use super::regions::{Region, Regions};
use super::x86_64::relocation_meaning;
use crate::elf::file::ElfFile;
use crate::elf::section::{Section, SectionIndex};
use crate::elf::symbol::SymbolTable;
use crate::functions::FunctionTable;
use reorder_base::address::Address;

/// Width of a pointer in bytes.
const WORD: usize = 8;

/// A word and the address that it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pointer {
    /// The word.
    pub(super) place: Address,
    /// What it refers to.
    pub(super) target: Address,
}

/// All pointers, one for each place, by place.
pub(super) struct Pointers(Vec<Pointer>);

impl Pointers {
    pub(super) fn collect(file: &ElfFile<'_>, functions: &FunctionTable<'_>, regions: &Regions<'_>) -> Self {
        let mut pointers = Vec::new();
        let mut has_kept = false;
        for section in file.sections.iter().filter(|section| section.has_bytes()) {
            if section.is_loaded() && section.kind == object::elf::SHT_RELR.0 {
                collect_packed(file, regions, section, &mut pointers);
            } else if section.kind == object::elf::SHT_RELA.0 {
                collect_explicit(file, section, &mut pointers);
                has_kept |= !section.is_loaded() && section.info != 0;
            }
        }
        if regions.is_fixed && !has_kept {
            collect_words(file, functions, regions, &mut pointers);
        }
        pointers.retain(|pointer| matches!(regions.find(pointer.place), Some(Region::Data | Region::Slots)));
        pointers.sort_unstable();
        pointers.dedup_by_key(|pointer| pointer.place);
        Self(pointers)
    }

    /// The address that the word at `place` holds.
    pub(super) fn at(&self, place: Address) -> Option<Address> {
        let index = self.0.binary_search_by_key(&place, |pointer| pointer.place).ok()?;
        Some(self.0[index].target)
    }

    /// All of them, by place.
    pub(super) fn iter(&self) -> impl Iterator<Item = Pointer> {
        self.0.iter().copied()
    }
}

fn collect_explicit(file: &ElfFile<'_>, section: &Section<'_>, pointers: &mut Vec<Pointer>) {
    let bytes = file.section_bytes(section);
    let count = bytes.len() / size_of::<Rela64<LittleEndian>>();
    let Ok((entries, _)) = pod::slice_from_bytes::<Rela64<LittleEndian>>(bytes, count) else { return };
    let symbols = SymbolTable::parse_section(file, SectionIndex(section.link)).ok();
    for entry in entries {
        let info = entry.r_info.get(LittleEndian);
        let Some(meaning) = relocation_meaning(info as u32) else { continue };
        let addend = entry.r_addend.get(LittleEndian) as u64;
        let place = Address(entry.r_offset.get(LittleEndian));
        let symbol = || {
            let symbol = symbols.as_ref()?.get((info >> 32) as usize)?;
            (symbol.defining_section().is_some() && !symbol.is_thread_local()).then_some(symbol)
        };
        let target = match meaning {
            RelocationMeaning::Addend => Some(Address(addend)),
            RelocationMeaning::Symbol => symbol().map(|symbol| symbol.value.plus(addend)),
            // The addend includes the word's distance from the base of its table: only the symbol is certain, and a
            // section's symbol has no target.
            RelocationMeaning::Distance => {
                symbol().filter(|symbol| !symbol.is_section()).map(|symbol| symbol.value)
            }
        };
        pointers.extend(target.map(|target| Pointer { place, target }));
    }
}

fn collect_packed(
    file: &ElfFile<'_>,
    regions: &Regions<'_>,
    section: &Section<'_>,
    pointers: &mut Vec<Pointer>,
) {
    let bytes = file.section_bytes(section);
    let count = bytes.len() / size_of::<Relr64<LittleEndian>>();
    let Ok((words, _)) = pod::slice_from_bytes::<Relr64<LittleEndian>>(bytes, count) else { return };
    // A word of the file holds one pointer; a table that goes back and forth could name it a thousand times.
    let most = file.bytes.len() / WORD;
    for place in RelrIterator::<FileHeader64<LittleEndian>>::new(LittleEndian, words).take(most) {
        let place = Address(place);
        let word = regions.bytes(place, place.plus(WORD as u64)).try_into().ok();
        pointers.extend(word.map(|word| Pointer { place, target: Address(u64::from_le_bytes(word)) }));
    }
}

/// Aligned words that equal a function's start or lie in data. A number that looks like one costs an edge.
fn collect_words(
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    regions: &Regions<'_>,
    pointers: &mut Vec<Pointer>,
) {
    for section in file.sections.iter().filter(|section| section.is_loaded() && section.has_bytes()) {
        if section.size == 0 || !regions.is_data(section.address) {
            continue;
        }
        let start = section.address.plus(section.address.0.wrapping_neg() % WORD as u64);
        let skipped = start.distance_from(section.address) as usize;
        let bytes = file.section_bytes(section).get(skipped..).unwrap_or(&[]);
        for (index, word) in bytes.chunks_exact(WORD).enumerate() {
            let Ok(word) = word.try_into() else { continue };
            let target = Address(u64::from_le_bytes(word));
            if !regions.image.contains(&target) {
                continue;
            }
            if functions.starting_at(target).is_some() || regions.is_data(target) {
                pointers.push(Pointer { place: start.plus((index * WORD) as u64), target });
            }
        }
    }
}
