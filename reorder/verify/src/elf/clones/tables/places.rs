//! Where copied tables may lie, and which places inside of functions a jump through a pointer may lead to.

use goblin::elf::program_header::PF_W;
use goblin::elf::section_header::{SHF_WRITE, SHT_PROGBITS, SHT_RELA};

use crate::bytes::u64_at;
use crate::elf::clones::code::lea_targets;
use crate::elf::clones::record::{Copied, CopiedTable};
use crate::elf::pointers::{RELA_SIZE, written_places};
use crate::elf::view::{ElfView, SectionView};
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, NewAddress};

/// Bytes that the loader writes at one place.
const WORD: u64 = 8;

/// Checks the places of `tables`; gives them in the order of the copies. `fragments` are in that order too.
///
/// # Errors
/// The first table that breaks a rule.
pub(in crate::elf::clones) fn check_table_places(
    old: &ElfView<'_>,
    section: &SectionView<'_>,
    (tables, fragments): (&[CopiedTable], &[Copied]),
) -> Result<Vec<CopiedTable>, Difference> {
    let mut by_copy = tables.to_vec();
    by_copy.sort_unstable_by_key(|table| table.copy);
    if by_copy.is_empty() {
        return Ok(by_copy);
    }
    let written = written_places(old);
    let mut end = NewAddress(0);
    for table in &by_copy {
        let wrong = |what: &str| {
            let name = format!("the copy of the table at {} at {}", table.original, table.copy);
            Err(Difference::new(Check::Copies, None, name, "a copied jump table", what))
        };
        if old.processor != Processor::X86_64 {
            return wrong("one for another processor");
        }
        if table.count == 0 || !is_constant(old, table) {
            return wrong("not of constants");
        }
        if is_written(&written, table) {
            return wrong("one that the loader writes to");
        }
        let is_aligned = table.copy.0.is_multiple_of(table.entry);
        if !is_aligned || !section.holds(table.copy.0, table.copy_end().0) {
            return wrong("not aligned in the section of copies");
        }
        let after = fragments.partition_point(|copied| copied.copy_end() <= table.copy);
        let is_shared = fragments.get(after).is_some_and(|copied| copied.copy < table.copy_end());
        if is_shared || table.copy < end {
            return wrong("it shares bytes with another copy");
        }
        end = table.copy_end();
    }
    Ok(by_copy)
}

/// Whether the loader writes to the original; `written` are all places that it writes to, ascending.
pub(super) fn is_written(written: &[u64], table: &CopiedTable) -> bool {
    let first = written.partition_point(|&place| place.saturating_add(WORD) <= table.original.0);
    written.get(first).is_some_and(|&place| place < table.original.plus(table.size()).0)
}

/// Whether the original lies in one section of data that nothing writes to or executes.
pub(super) fn is_constant(old: &ElfView<'_>, table: &CopiedTable) -> bool {
    let (start, end) = (table.original.0, table.original.plus(table.size()).0);
    let is_data = old.section_at(start).is_some_and(|section| {
        section.kind == SHT_PROGBITS
            && !section.is_code()
            && section.flags & u64::from(SHF_WRITE) == 0
            && section.holds(start, end)
    });
    // Sections are only names: segments say what may be written.
    let is_writable = old.mapped.iter().any(|segment| {
        let segment_end = segment.p_vaddr.saturating_add(segment.p_memsz);
        segment.p_flags & PF_W != 0 && segment.p_vaddr < end && start < segment_end
    });
    is_data && !is_writable
}

/// Addresses inside of functions that data or code may hold, ascending.
pub(super) fn held_inside(image: &ElfView<'_>, functions: &AddressMoves) -> Vec<Address> {
    let relocations = image.sections.iter().filter(|section| section.kind == SHT_RELA);
    let addends = relocations
        .flat_map(|section| section.bytes.chunks_exact(RELA_SIZE))
        .filter_map(|entry| u64_at(entry, 16));
    let data = image.sections.iter().filter(|section| section.is_loaded() && !section.is_code());
    let words = data.flat_map(|section| section.bytes.chunks_exact(8)).filter_map(|word| u64_at(word, 0));
    let formed = image.code_sections().flat_map(|section| lea_targets(section).map(|(target, _)| target));
    let is_inside = |held: &Address| functions.containing(*held).is_some_and(|home| home.old_start < *held);
    let mut held: Vec<Address> = addends.chain(words).chain(formed).map(Address).filter(is_inside).collect();
    held.sort_unstable();
    held.dedup();
    held
}
