//! Signs of unlisted references to functions.
//!
//! Relative pointers have no fixups, so data of an unknown kind may hold them. A word of data that would lead exactly to
//! the start of a function pins that function, unless the word is listed: a false alarm pins one function, a missed one
//! breaks the program. Functions without any reference are checked again: their distance from the start of the image or of
//! `__text`, stored anywhere, pins them too.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::atoms::{AtomIndex, Atoms};
use super::data::DataFacts;
use super::units::Obligations;
use crate::code_reference::{AtomReferences, CodeReference};
use crate::decoded_atom::DecodedAtom;
use crate::macho::export_trie::{self, ExportValue};
use crate::macho::file::MachOFile;
use crate::macho::load_command::LinkEditPart;
use crate::macho::section::Section;
use crate::pins::PinReason;
use reorder_base::address::Address;

/// Pins the functions that unlisted words may refer to; gives the number of functions without a listed reference.
pub(super) fn pin_unexplained(
    file: &MachOFile<'_>,
    atoms: &Atoms,
    facts: &DataFacts,
    fixed: &[CodeReference],
    decoded: &[DecodedAtom],
    code: &AtomReferences,
    obligations: &mut Obligations<'_>,
) -> usize {
    let mut listed: Vec<Address> = facts.references.iter().map(|reference| reference.place).collect();
    listed.extend(decoded.iter().flat_map(|atom| atom.table_words.iter().map(|word| word.place)));
    listed.sort_unstable();
    let is_listed = |place: Address| listed.binary_search(&place).is_ok();
    let is_referenced = referenced(file, atoms, facts, fixed, decoded, code);
    let orphans = is_referenced.iter().filter(|is_referenced| !**is_referenced).count();
    let is_orphan = |address: Address| {
        let atom = atoms.containing(address).map(|atom| atom.0 as usize);
        atom.is_some_and(|atom| atoms.starts[atom] == address && !is_referenced[atom])
    };
    let (base, text) = (file.base(), file.text().address);
    let sections: Vec<&Section<'_>> =
        file.sections.iter().filter(|section| section.has_bytes() && !is_explained(section)).collect();
    for section in sections {
        let bytes = file.section_bytes(section);
        let (words, _) = bytes.as_chunks::<4>();
        let hits: Vec<(Address, Address, PinReason)> = words
            .par_iter()
            .enumerate()
            .with_min_len(1 << 14)
            .filter_map(|(index, word)| {
                let place = section.address.plus(index as u64 * 4);
                let word = u32::from_le_bytes(*word);
                if word == 0 {
                    return None;
                }
                let relative = place.plus(i64::from(word as i32) as u64);
                if atoms.is_start(relative) && !is_listed(place) {
                    return Some((relative, place, PinReason::RelativePointer));
                }
                let offsets = [base, text].map(|from| from.plus(u64::from(word)));
                let orphan = offsets.into_iter().find(|address| is_orphan(*address));
                orphan.filter(|_| !is_listed(place)).map(|orphan| (orphan, place, PinReason::Unreferenced))
            })
            .collect();
        for (target, place, reason) in hits {
            obligations.pin_at(target, reason, place);
        }
    }
    orphans
}

/// Sections whose words are all accounted for by their own readers.
fn is_explained(section: &Section<'_>) -> bool {
    section.is_code()
        || section.is(b"__TEXT", b"__unwind_info")
        || section.is(b"__TEXT", b"__eh_frame")
        || section.is(b"__TEXT", b"__cstring")
        || section.segment == b"__LINKEDIT"
}

/// For each atom, whether it has a listed reference.
fn referenced(
    file: &MachOFile<'_>,
    atoms: &Atoms,
    facts: &DataFacts,
    fixed: &[CodeReference],
    decoded: &[DecodedAtom],
    code: &AtomReferences,
) -> Vec<bool> {
    // Flags are only ever set, so the order of the threads does not matter.
    let is_referenced: Vec<AtomicBool> = (0..atoms.len()).map(|_| AtomicBool::new(false)).collect();
    let mark = |target: Address| {
        if let Some(AtomIndex(index)) = atoms.containing(target) {
            is_referenced[index as usize].store(true, Ordering::Relaxed);
        }
    };
    facts.references.iter().filter(|reference| !is_frame(file, reference.place)).for_each(|reference| {
        mark(reference.target);
    });
    facts.roots.iter().copied().for_each(mark);
    fixed.iter().for_each(|reference| mark(reference.target));
    decoded.par_iter().enumerate().with_min_len(256).for_each(|(index, atom)| {
        code.of_atom(index, atoms.starts[index]).for_each(|reference| mark(reference.target));
        atom.ties.iter().copied().for_each(mark);
        atom.table_words.iter().for_each(|word| mark(word.target));
    });
    let exports = export_trie::parse(file.link_edit_bytes(LinkEditPart::Exports)).unwrap_or_default();
    for export in &exports {
        match export.value {
            ExportValue::Offset(offset) => mark(file.address_of(offset)),
            ExportValue::StubAndResolver { stub, resolver } => {
                mark(file.address_of(stub));
                mark(file.address_of(resolver));
            }
            ExportValue::Absolute(_) | ExportValue::Reexport(_) => {}
        }
    }
    is_referenced.into_iter().map(AtomicBool::into_inner).collect()
}

/// Unwind entries describe functions, called or not.
fn is_frame(file: &MachOFile<'_>, place: Address) -> bool {
    file.section(b"__TEXT", b"__eh_frame").is_some_and(|section| section.range().contains(&place))
}
