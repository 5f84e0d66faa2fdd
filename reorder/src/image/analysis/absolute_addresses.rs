//! Programs at a fixed address: what may be an absolute address of code pins that code.
//!
//! Such a program holds addresses as plain constants, and nothing says which constants are addresses. So none is
//! ever rewritten; instead every constant that *could* be the address of a function, or of a place inside or right
//! behind one, keeps that function where it is. What remains is referred to only relative to the instruction, as in
//! a position-independent program, and moves by the same rules.
//!
//! Constants are: immediates and displacements of all instructions, eight-byte words at any byte of the data, and
//! aligned four-byte words.

use rayon::prelude::*;

use crate::address::Address;
use crate::image::analysis::blocks::{BlockIndex, Partition};
use crate::image::analysis::pins::{Pin, PinReason};
use crate::image::analysis::references::Finding;
use crate::image::code::CodeSpace;
use crate::image::decode::x86_64::DecodedBlock;
use crate::image::elf::file::ElfFile;
use crate::image::elf::section::Section;

/// Pins for all constants in code and data.
pub fn check_absolute_addresses(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    decoded: &[DecodedBlock],
    findings: &mut Vec<Finding>,
) {
    for (index, block) in decoded.iter().enumerate() {
        let evidence = partition.blocks[index].start;
        for &value in &block.absolute_candidates {
            keep(partition, value, evidence, findings);
        }
    }
    for section in file.sections.iter().filter(|section| holds_constants(section)) {
        let hits: Vec<(Address, Address)> = words(code, file.section_bytes(section), section.address);
        for (value, place) in hits {
            keep(partition, value, place, findings);
        }
    }
}

/// Everything at `value`, and what ends there, stays.
fn keep(partition: &Partition, value: Address, evidence: Address, findings: &mut Vec<Finding>) {
    let pin = |block: BlockIndex| Finding::Pin(block, Pin { reason: PinReason::AbsoluteAddress, evidence });
    findings.extend(partition.block_containing(value).map(pin));
    findings.extend(partition.gap_containing(value).map(Finding::KeepGap));
    let before = Address(value.0.wrapping_sub(1));
    findings.extend(partition.block_containing(before).map(pin));
}

/// Words that could be code addresses: (value, place), in order of place.
fn words(code: &CodeSpace<'_>, bytes: &[u8], start: Address) -> Vec<(Address, Address)> {
    let is_code = |value: u64| code.arena_of(Address(value)).is_some();
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

/// Data that the program reads, as opposed to tables whose format is known and rewritten.
fn holds_constants(section: &Section<'_>) -> bool {
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
