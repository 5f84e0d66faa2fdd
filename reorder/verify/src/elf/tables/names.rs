//! Data that something names: where data may begin.

use goblin::elf::header::ET_EXEC;
use goblin::elf::section_header::SHT_DYNSYM;
use goblin::elf::sym::STT_TLS;

use crate::bytes::u64_at;
use crate::elf::absolute::section_constants;
use crate::elf::pair::ImagePair;
use crate::elf::pointers::loaded_pointers;
use crate::processor::Processor;
use reorder_base::address::Address;

/// Bytes of an entry of `.dynsym`.
const SYMBOL_SIZE: usize = 24;

/// All that code, pointers and exported symbols name, sorted; `references` are the addresses that code forms.
pub(super) fn named_places(pair: ImagePair<'_>, references: &[Address]) -> Vec<Address> {
    let stored = pair.absolute.all().iter().map(|field| field.value);
    let mut named: Vec<Address> = references.iter().copied().chain(stored).collect();
    named.extend(loaded_pointers(pair.old));
    named.extend(stated_addresses(pair));
    let symbols = pair.old.sections.iter().filter(|section| section.kind == SHT_DYNSYM);
    let exported = symbols.flat_map(|section| section.bytes.chunks_exact(SYMBOL_SIZE)).filter_map(|symbol| {
        let [_, _, _, _, information, _, low, high, ..] = *symbol else { return None };
        let is_address = information & 15 != STT_TLS && (low, high) != (0, 0);
        is_address.then(|| u64_at(symbol, 8).map(Address)).flatten()
    });
    named.extend(exported);
    named.sort_unstable();
    named.dedup();
    named
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
