//! Data that something names: where data may begin.

use goblin::elf::header::ET_EXEC;
use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};
use goblin::elf::sym::{STT_OBJECT, STT_TLS};
use rayon::prelude::*;

use crate::elf::absolute::section_constants;
use crate::elf::pair::ImagePair;
use crate::elf::pointers::loaded_pointers;
use crate::elf::symbol_walk::symbols;
use crate::processor::Processor;
use reorder_base::address::Address;

/// Addresses that code forms or a pointer holds, sorted.
pub(super) fn held_addresses(pair: ImagePair<'_>, formed: &[Address]) -> Vec<Address> {
    let stored = pair.absolute.all().iter().map(|field| field.value);
    sorted(formed.iter().copied().chain(stored).chain(loaded_pointers(pair.old)).collect())
}

/// All that code, pointers, exported symbols and `variables` name, sorted; `references` are the addresses that code forms.
pub(super) fn named_places(
    pair: ImagePair<'_>,
    references: &[Address],
    variables: &[Address],
) -> Vec<Address> {
    let exported = symbols(pair.old, SHT_DYNSYM);
    let exported = exported.filter(|symbol| symbol.is_defined() && symbol.kind != STT_TLS);
    let mut named = held_addresses(pair, references);
    named.extend(stated_addresses(pair));
    named.extend(exported.map(|symbol| Address(symbol.value)));
    named.extend(variables);
    sorted(named)
}

/// Where symbols say that variables begin, sorted. Compilers give tables no symbols.
pub(super) fn variable_starts(pair: ImagePair<'_>) -> Vec<Address> {
    let all = symbols(pair.old, SHT_SYMTAB);
    let sized = all.filter(|symbol| symbol.is_defined() && symbol.kind == STT_OBJECT && symbol.size > 0);
    sorted(sized.map(|symbol| Address(symbol.value)).collect())
}

/// Each address once, ascending.
pub(super) fn sorted(mut addresses: Vec<Address>) -> Vec<Address> {
    addresses.par_sort_unstable();
    addresses.dedup();
    addresses
}

/// Addresses of data that x86-64 code at a fixed address holds as constants, as `movslq table(,%rax,4)` does.
pub(super) fn stated_addresses(pair: ImagePair<'_>) -> Vec<Address> {
    let is_fixed = pair.old.header.e_type == ET_EXEC && pair.old.processor == Processor::X86_64;
    let sections = pair.old.code_sections().filter(|_| is_fixed);
    let constants = sections.flat_map(|section| section_constants(section, pair.moves));
    let constants = constants.map(|(_, value)| Address(value));
    constants
        .filter(|value| pair.old.section_at(value.0).is_some_and(|home| home.is_loaded() && !home.is_code()))
        .collect()
}
