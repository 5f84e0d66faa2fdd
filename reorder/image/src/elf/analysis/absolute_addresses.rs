//! Programs at a fixed address: a constant that may be an absolute address of code, but is not known to be one, pins the
//! code.
//!
//! Such a program holds addresses as plain constants. Relocations that the linker kept say which constants are addresses. In
//! a section without them, such as one that the linker wrote itself, or in an image without them, any constant may be one.
//! There none is ever rewritten; instead every constant that *could* be the address of a function, or of a place inside or
//! directly after one, pins that function. The other functions are referred to only relative to the instruction, as in a
//! position-independent program, and move by the same rules.
//!
//! Constants are: immediates and displacements of all instructions, eight-byte words at any byte of the data, and
//! aligned four-byte words. Where relocations list the addresses, a constant that equals the start of a function and has no
//! entry still pins that function: it is most likely a number, but pinning costs next to nothing.

use std::ops::Range;

use rayon::prelude::*;

use crate::decode::aarch64::WORD;
use crate::decode::x86_64::{
    DecodedBlock, KeptNumber, absolute_constants, address_tables, constants_from, kept_numbers_from,
};
use crate::elf::analysis::absolute_fields::AbsoluteField;
use crate::elf::analysis::blocks::{Block, BlockIndex, Partition};
use crate::elf::analysis::references::Finding;
use crate::elf::code::CodeSpace;
use crate::elf::file::ElfFile;
use crate::elf::section::Section;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// The known absolute addresses of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    /// The fields, by place.
    pub fields: &'a [AbsoluteField],
    /// Start addresses, ascending, of the sections whose addresses are all among the fields.
    pub listed: &'a [Address],
}

impl Known<'_> {
    fn lists(&self, section: Address) -> bool {
        self.listed.binary_search(&section).is_ok()
    }

    /// Whether a field overlaps the word at `place`.
    fn explains(&self, place: Address) -> bool {
        const MAX_WORD_LENGTH: u64 = 8;
        let after = self.fields.partition_point(|field| field.place < place.plus(MAX_WORD_LENGTH));
        let field = after.checked_sub(1).map(|index| self.fields[index]);
        field.is_some_and(|field| field.place.plus(u64::from(field.width)) > place)
    }

    /// Addresses that fields in `block` hold.
    fn explained_in(&self, start: Address, end: Address) -> impl Iterator<Item = Address> {
        let first = self.fields.partition_point(|field| field.place < start);
        self.fields[first..].iter().take_while(move |field| field.place < end).map(|field| field.target)
    }
}

/// Constants in code that could be addresses of code.
#[derive(Clone, Debug, Default)]
pub(crate) struct CodeConstants {
    /// By block.
    pub blocks: Vec<(BlockIndex, Address)>,
    /// In gaps and stubs, which are never written: the value, and the address that holds it.
    pub unwritten: Vec<(Address, Address)>,
}

impl CodeConstants {
    /// All of them.
    pub(super) fn values(&self) -> impl Iterator<Item = Address> + '_ {
        self.blocks.iter().map(|&(_, value)| value).chain(self.unwritten.iter().map(|&(value, _)| value))
    }
}

/// Pins for all constants in code and data that are not among the known fields.
pub(crate) fn check_absolute_addresses(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    constants: &CodeConstants,
    known: Known<'_>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for &(index, value) in &constants.blocks {
        let block = partition.block(index);
        let is_listed = known.lists(code.arenas[block.arena as usize].start);
        let is_explained = || known.explained_in(block.start, block.end).any(|target| target == value);
        if !is_listed || is_start(partition, value) && !is_explained() {
            findings.extend(keep(code, partition, value, block.start));
        }
    }
    for &(value, evidence) in &constants.unwritten {
        findings.extend(keep(code, partition, value, evidence));
    }
    for section in file.sections.iter().filter(|section| holds_constants(section)) {
        let is_listed = known.lists(section.address);
        for (value, place) in words(code, file.section_bytes(section), section.address) {
            if !known.explains(place) && (!is_listed || is_start(partition, value)) {
                findings.extend(keep(code, partition, value, place));
            }
        }
    }
    findings
}

/// Every address of code that data may hold, to which control may therefore go.
pub(crate) fn possible_targets(file: &ElfFile<'_>, code: &CodeSpace<'_>) -> Vec<Address> {
    possible_places(file, code).filter(|value| code.arena_of(*value).is_some()).collect()
}

/// The same, and ends of code sections: one can stand for the function before it.
pub(crate) fn possible_places(file: &ElfFile<'_>, code: &CodeSpace<'_>) -> impl Iterator<Item = Address> {
    let sections = file.sections.iter().filter(|section| holds_constants(section));
    let words = sections.flat_map(|section| words(code, file.section_bytes(section), section.address));
    words.map(|(value, _)| value)
}

/// The constants of x86-64 code.
pub(crate) fn operands(
    code: &CodeSpace<'_>,
    partition: &Partition,
    decoded: &[DecodedBlock],
) -> CodeConstants {
    let blocks = decoded.iter().enumerate().flat_map(|(index, block)| {
        block.absolute_candidates.iter().map(move |&value| (BlockIndex(index as u32), value))
    });
    let unwritten = unwritten_ranges(code, partition).flat_map(|range| absolute_constants(code, range));
    CodeConstants { blocks: blocks.collect(), unwritten: unwritten.collect() }
}

/// The constants of AArch64 code: literals, and numbers that two instructions put together.
pub(crate) fn literals(code: &CodeSpace<'_>, partition: &Partition) -> CodeConstants {
    let of_range = |range: Range<Address>| {
        let bytes = code.bytes(range.clone());
        let built = built_numbers(bytes).filter(|&(value, _)| code.may_be_code(value));
        let built = built.map(move |(value, offset)| (value, range.start.plus(offset)));
        words(code, bytes, range.start).into_iter().chain(built)
    };
    let blocks = partition.blocks.iter().enumerate().flat_map(|(index, block)| {
        of_range(block.start..block.end).map(move |(value, _)| (BlockIndex(index as u32), value))
    });
    let unwritten = unwritten_ranges(code, partition).flat_map(of_range);
    CodeConstants { blocks: blocks.collect(), unwritten: unwritten.collect() }
}

/// All operands of x86-64 code that may be addresses of code: (value, instruction). Code is read from each place where a function,
/// a block, or what lies between them begins or ends, up to an instruction that was read before: whoever starts at one of
/// these places finds no other operands.
#[must_use]
pub fn operands_of_code(code: &CodeSpace<'_>, partition: &Partition) -> Vec<(Address, Address)> {
    let blocks = partition.blocks.iter();
    let of_blocks = blocks.flat_map(|block| block.function_starts().chain([block.start, block.end]));
    let of_gaps = partition.gaps.iter().flat_map(|gap| [gap.start, gap.end]);
    let mut places: Vec<Address> = of_blocks.chain(of_gaps).collect();
    places.sort_unstable();
    places.dedup();
    let arenas = code.arenas.iter().map(|arena| arena.start..arena.end);
    let ranges: Vec<Range<Address>> = arenas.chain(code.fixed.iter().cloned()).collect();
    let of_range = |range: &Range<Address>| {
        let first = places.partition_point(|place| *place < range.start);
        let inside = places[first..].iter().copied().take_while(|place| *place < range.end);
        constants_from(code, range.clone(), std::iter::once(range.start).chain(inside))
    };
    ranges.par_iter().flat_map_iter(of_range).collect()
}

/// Operands of x86-64 functions that instructions keep and that may be addresses of code.
#[must_use]
pub fn kept_numbers(code: &CodeSpace<'_>, partition: &Partition) -> Vec<KeptNumber> {
    let of_block =
        |block: &Block| kept_numbers_from(code, block.first_function..block.end, block.function_starts());
    partition.blocks.par_iter().flat_map_iter(of_block).collect()
}

/// Tables of addresses through which x86-64 functions jump at an index.
#[derive(Clone, Debug, Default)]
pub struct TablesOfAddresses {
    /// Their bases, each with a block that jumps; ascending.
    pub bases: Vec<(Address, BlockIndex)>,
    /// Addresses of data that instructions state, ascending.
    pub stated: Vec<Address>,
}

/// The tables of addresses of all functions.
#[must_use]
pub fn tables_of_addresses(code: &CodeSpace<'_>, partition: &Partition) -> TablesOfAddresses {
    let of_block = |index: usize| {
        let block = &partition.blocks[index];
        let found = address_tables(code, block.first_function..block.end, block.function_starts());
        let bases = found.bases.into_iter().map(|base| (base, BlockIndex(index as u32))).collect();
        TablesOfAddresses { bases, stated: found.stated }
    };
    let all = (0..partition.blocks.len()).into_par_iter().map(of_block);
    let mut all = all.reduce(TablesOfAddresses::default, |mut all, mut other| {
        all.bases.append(&mut other.bases);
        all.stated.append(&mut other.stated);
        all
    });
    all.bases.sort_unstable();
    all.bases.dedup();
    all.stated.par_sort_unstable();
    all.stated.dedup();
    all
}

/// Gaps and stubs.
fn unwritten_ranges<'a>(
    code: &'a CodeSpace<'_>,
    partition: &'a Partition,
) -> impl Iterator<Item = Range<Address>> + 'a {
    let gaps = partition.gaps.iter().map(|gap| gap.start..gap.end);
    gaps.chain(code.fixed.iter().cloned())
}

/// 32-bit numbers formed by a `MOVZ` and one of the next few `MOVK` of its register: (value, position).
fn built_numbers(bytes: &[u8]) -> impl Iterator<Item = (Address, u64)> + '_ {
    const WINDOW: usize = 8;
    let word_at = |index: usize| {
        let word = bytes.get(4 * index..4 * index + 4)?;
        Some(u32::from_le_bytes(word.try_into().ok()?))
    };
    // Opcode without the width and the shift; register; sixteen bits; the shift in halves.
    let parts = |word: u32| (word >> 23 & 0xff, word & 31, u64::from(word >> 5 & 0xffff), word >> 21 & 3);
    const MOVZ: u32 = 0xa5;
    const MOVK: u32 = 0xe5;
    (0..bytes.len() / 4).filter_map(move |index| {
        let (opcode, register, low, shift) = parts(word_at(index)?);
        if opcode != MOVZ || shift > 1 {
            return None;
        }
        let rest = (index + 1..index + WINDOW).filter_map(word_at).map(parts);
        let other = rest.filter(|part| part.0 == MOVK && part.1 == register && part.3 == 1 - shift);
        let (_, _, high, other_shift) = other.into_iter().next().unwrap_or((MOVK, register, 0, 1 - shift));
        Some((Address(low << (16 * shift) | high << (16 * other_shift)), 4 * index as u64))
    })
}

fn is_start(partition: &Partition, value: Address) -> bool {
    partition.block_containing(value).is_some_and(|block| partition.block(block).is_entry(value))
}

/// Pins code at `value` and code that ends there. Where instructions are words, an address between two of them is that of
/// the next minus a constant.
fn keep(code: &CodeSpace<'_>, partition: &Partition, value: Address, evidence: Address) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pin = |block: BlockIndex| Finding::Pin(block, Pin { reason: PinReason::AbsoluteAddress, evidence });
    findings.extend(partition.block_containing(value).map(pin));
    findings.extend(partition.gap_containing(value).map(Finding::KeepGap));
    let before = Address(value.0.wrapping_sub(1));
    findings.extend(partition.block_containing(before).map(pin));
    if code.processor == Processor::Aarch64 && !value.0.is_multiple_of(WORD) {
        let after = value.plus(WORD - value.0 % WORD);
        findings.extend(partition.block_containing(after).map(pin));
    }
    findings
}

/// Words that could be code addresses: (value, place), in order of place.
fn words(code: &CodeSpace<'_>, bytes: &[u8], start: Address) -> Vec<(Address, Address)> {
    let is_code = |value: u64| code.may_be_code(Address(value));
    (0..bytes.len().saturating_sub(3))
        .into_par_iter()
        .with_min_len(1 << 16)
        .filter_map(|position| {
            let place = start.plus(position as u64);
            let low = u64::from(u32::from_le_bytes(bytes[position..position + 4].try_into().ok()?));
            let is_wide = bytes.get(position + 4..position + 8) == Some(&[0; 4]);
            let is_word = is_wide || place.0.is_multiple_of(4);
            (is_word && is_code(low)).then_some((Address(low), place))
        })
        .collect()
}

/// Whether the program itself reads this section as data: it is neither code nor a table of a known format.
#[must_use]
pub fn holds_constants(section: &Section<'_>) -> bool {
    const KNOWN: [&[u8]; 2] = [b".eh_frame", b".eh_frame_hdr"];
    let is_plain = ![
        object::elf::SHT_RELA.0,
        object::elf::SHT_RELR.0,
        object::elf::SHT_DYNSYM.0,
        object::elf::SHT_STRTAB.0,
        object::elf::SHT_HASH.0,
        object::elf::SHT_GNU_HASH.0,
        object::elf::SHT_NOTE.0,
        object::elf::SHT_DYNAMIC.0,
    ]
    .contains(&section.kind);
    is_plain
        && section.is_loaded()
        && !section.is_executable()
        && section.has_bytes()
        && !KNOWN.contains(&section.name)
}
