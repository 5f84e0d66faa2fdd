//! What the loader may read: kinds of sections and entries of `.dynamic` of which it is known whether they hold addresses.
//!
//! A kind that is not known may be another packed form of relocations, whose words stay as they were. Sources: System V ABI,
//! chapters 4 and 5; GNU gABI extensions; ELF for the Arm 64-bit Architecture, 5.2 and 6.4.

use super::dynamic::DynamicEntry;
use super::file::ElfFile;
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};

/// Refuses (R9) loaded sections and entries of `.dynamic` of unknown kinds.
///
/// # Errors
/// The refusal.
pub(crate) fn check_loader_formats(file: &ElfFile<'_>, dynamic: &[DynamicEntry]) -> Result<(), Refusal> {
    const CURE: &str = "relink without extensions of the format, such as packed Android relocations";
    for section in file.sections.iter().filter(|section| section.is_loaded()) {
        if !is_known_section(file.processor, section.kind) {
            let reason = format!(
                "section {} is of the unknown type {:#x} and may hold code addresses",
                section.display_name(),
                section.kind
            );
            return Err(Refusal::new(RefusalCode::UnknownCodeAddresses, reason, CURE).at(section.address));
        }
    }
    match dynamic.iter().find(|entry| !is_known_entry(file.processor, entry.tag)) {
        Some(entry) => {
            let reason =
                format!("an entry of .dynamic of the unknown kind {:#x} may hold code addresses", entry.tag);
            Err(Refusal::new(RefusalCode::UnknownCodeAddresses, reason, CURE))
        }
        None => Ok(()),
    }
}

/// Among them the forms of relocations that are read, and those that are refused by name.
fn is_known_section(processor: Processor, kind: u32) -> bool {
    match kind {
        // PROGBITS to PREINIT_ARRAY, GROUP, SYMTAB_SHNDX, RELR, CREL.
        0..=11 | 14..=19 | 0x4000_0014 => true,
        // Android's REL and RELA; SFrame; the GNU hash table, lists of libraries and versions.
        0x6000_0001 | 0x6000_0002 | 0x6fff_fff4..=0x6fff_fff7 | 0x6fff_fffd..=0x6fff_ffff => true,
        // Unwind entries.
        0x7000_0001 => processor == Processor::X86_64,
        _ => false,
    }
}

fn is_known_entry(processor: Processor, tag: i64) -> bool {
    match tag {
        // NULL to RELRENT.
        0..=37 => true,
        // GNU: numbers (prelinking, checksums, flags), addresses of tables, and of what audits and filters.
        0x6fff_fdf5..=0x6fff_fdff | 0x6fff_fef5..=0x6fff_feff | 0x6fff_fff0..=0x6fff_ffff => true,
        0x7fff_fffd..=0x7fff_ffff => true,
        // X86_64_PLT, PLTSZ, PLTENT.
        0x7000_0000 | 0x7000_0001 | 0x7000_0003 if processor == Processor::X86_64 => true,
        // BTI_PLT, PAC_PLT, VARIANT_PCS: flags; MEMTAG_MODE, HEAP, STACK: numbers.
        0x7000_0001 | 0x7000_0003 | 0x7000_0005 | 0x7000_0009 | 0x7000_000b | 0x7000_000c => {
            processor == Processor::Aarch64
        }
        _ => false,
    }
}
