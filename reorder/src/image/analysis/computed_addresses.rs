//! Code that computes addresses of functions from constants: nothing that moves may take part.
//!
//! Three forms occur. The large code model adds a constant to the address of the global offset table, which it
//! computes from its own place. Hand-written dispatch adds a stored distance to the address of a function and calls
//! the sum. Linkers define `__start_X` and `__stop_X` around sections whose names are C identifiers, and the first
//! function of such a section has the address of the section itself.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::address::Address;
use crate::error::Result;
use crate::image::analysis::blocks::{BlockIndex, Partition};
use crate::image::analysis::pins::{Pin, PinReason};
use crate::image::analysis::references::Finding;
use crate::image::code::CodeSpace;
use crate::image::decode::x86_64::{DecodedBlock, FieldKind};
use crate::image::decoded_atom::beyond_sums;
use crate::image::elf::file::ElfFile;
use crate::image::refusal::RefusalCode;

/// Longest table of stored distances that is looked through, in entries.
pub(crate) const LONGEST_TABLE: usize = 1 << 12;

/// Sums that are tried for one block; no hand-written dispatch has more.
pub(crate) const MOST_SUMS: usize = 1 << 20;

/// Whether `distance` leads into `text` from an address between the first and the last of `bases`.
pub(crate) fn may_lead_to_code(bases: (Address, Address), distance: u64, text: &Range<Address>) -> bool {
    let from = |base: Address| i128::from(base.0) + i128::from(distance as i64);
    from(bases.0) < i128::from(text.end.0) && from(bases.1) >= i128::from(text.start.0)
}

/// Pins for the first two forms.
///
/// # Errors
/// R7 where more sums are called than are tried.
pub fn check_computed_addresses(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    decoded: &[DecodedBlock],
    findings: &mut Vec<Finding>,
) -> Result<()> {
    let offset_table = [&b".got.plt"[..], b".got"].into_iter().find_map(|name| file.section(name));
    for (index, block) in decoded.iter().enumerate() {
        let index = BlockIndex(index as u32);
        let evidence = partition.block(index).start;
        let pin = |block| Finding::Pin(block, Pin { reason: PinReason::ComputedAddress, evidence });
        if !block.wide_constants.is_empty() && block.takes_own_place {
            findings.push(pin(index));
        }
        for &constant in &block.wide_constants {
            let target = offset_table.map(|table| table.address.plus(constant));
            findings.extend(target.and_then(|target| partition.block_containing(target)).map(pin));
        }
        if block.has_computed_call {
            let reached = called_by_sum(file, code, partition, block)
                .ok_or_else(|| beyond_sums(RefusalCode::R7, evidence))?;
            if !reached.is_empty() {
                findings.push(pin(index));
            }
            findings.extend(reached.into_iter().map(pin));
        }
    }
    Ok(())
}

/// Pins what stands in a section whose start and end the linker marks.
pub fn check_named_sections(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    findings: &mut Vec<Finding>,
) {
    for (index, block) in partition.blocks.iter().enumerate() {
        let section = file.section_at(code.arenas[block.arena as usize].section);
        if section.is_some_and(|section| is_c_identifier(section.name)) {
            let pin = Pin { reason: PinReason::NamedSection, evidence: block.start };
            findings.push(Finding::Pin(BlockIndex(index as u32), pin));
        }
    }
}

/// The functions whose addresses the block takes, and those at stored distances from them; nothing if these are too many.
fn called_by_sum(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    block: &DecodedBlock,
) -> Option<Vec<BlockIndex>> {
    let taken = block.fields.iter().filter(|field| field.kind == FieldKind::AddressOf);
    let bases = taken.map(|field| field.target(code)).filter(|&target| code.arena_of(target).is_some());
    let bases: BTreeSet<Address> = bases.collect();
    let tables: BTreeSet<Address> = block.data_references.iter().copied().collect();
    let mut found: Vec<BlockIndex> =
        bases.iter().filter_map(|&base| partition.block_containing(base)).collect();
    let (Some(&lowest), Some(&highest)) = (bases.first(), bases.last()) else { return Some(found) };
    let (first, last) =
        (code.arenas.iter().map(|arena| arena.start).min(), code.arenas.iter().map(|arena| arena.end).max());
    let text = first.unwrap_or(Address(0))..last.unwrap_or(Address(0));
    let mut budget = MOST_SUMS;
    for &table in &tables {
        let words = (0..LONGEST_TABLE as u64).map_while(|index| file.bytes_at(table.plus(8 * index), 8));
        let words = words.filter_map(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        // Zeros lead to the bases themselves.
        for word in words.filter(|word| *word != 0 && may_lead_to_code((lowest, highest), *word, &text)) {
            budget = budget.checked_sub(bases.len())?;
            let targets = bases.iter().map(|base| base.plus(word));
            let blocks = targets.filter(|&target| target != table).filter_map(|target| {
                let index = partition.block_containing(target)?;
                partition.block(index).is_entry(target).then_some(index)
            });
            found.extend(blocks);
        }
    }
    Some(found)
}

fn is_c_identifier(name: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    name.first().is_some_and(|first| !first.is_ascii_digit()) && name.iter().all(is_word)
}
