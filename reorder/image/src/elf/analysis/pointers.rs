//! Words in data that hold code addresses, as the loader's relocations name them.

use rayon::prelude::*;

use crate::elf::code::{CodeSpace, Region};
use crate::elf::file::ElfFile;
use crate::elf::relocation::{LoaderAction, LoaderRelocation};
use reorder_base::address::{Address, FileOffset};
use reorder_base::refusal::{Refusal, RefusalCode};

/// One word with the address of code in an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePointer {
    /// The code address.
    pub target: Address,
    /// The word in memory.
    pub place: Address,
    /// Where the relocation entry stores the address, if it does.
    pub addend_field: Option<FileOffset>,
    /// Where the word itself stores the address, if it does.
    pub place_field: Option<FileOffset>,
}

/// All pointers into arenas, sorted by target, then place.
///
/// # Errors
/// Refuses (R3) relocations whose place lies in code.
pub fn code_pointers(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    relocations: &[LoaderRelocation],
) -> Result<Vec<CodePointer>, Refusal> {
    let mut pointers = Vec::new();
    for relocation in relocations {
        if matches!(code.region(relocation.place), Region::Arena | Region::FixedCode) {
            return Err(Refusal::new(
                RefusalCode::ChangingCode,
                "the loader writes into the code (text relocations)",
                "rebuild all objects as position-independent code (-fPIC, -fPIE)",
            )
            .at(relocation.place));
        }
        let (LoaderAction::Relative(target) | LoaderAction::ResolveIndirect(target)) = relocation.action
        else {
            continue;
        };
        if code.arena_of(target).is_none() {
            continue;
        }
        // Some linkers store the address in the word as well; a stale copy would mislead tools that read it.
        let place_field = file.offset_of(relocation.place, 8).filter(|offset| {
            let start = offset.0 as usize;
            file.bytes[start..start + 8] == target.0.to_le_bytes()
        });
        pointers.push(CodePointer {
            target,
            place: relocation.place,
            addend_field: relocation.addend_field,
            place_field,
        });
    }
    pointers.par_sort_unstable_by_key(|pointer| (pointer.target, pointer.place, pointer.addend_field));
    Ok(pointers)
}

/// What words of data hold, by place.
#[derive(Clone, Debug, Default)]
pub struct PointersByPlace(Vec<(Address, Address)>);

impl PointersByPlace {
    /// Sorts `pointers` by place.
    pub fn new(pointers: &[CodePointer]) -> Self {
        let mut by_place: Vec<_> = pointers.iter().map(|pointer| (pointer.place, pointer.target)).collect();
        by_place.par_sort_unstable();
        Self(by_place)
    }

    /// The address of code in the word at `place`.
    pub fn at(&self, place: Address) -> Option<Address> {
        let index = self.0.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        Some(self.0[index].1)
    }
}

impl PointersByPlace {
    /// With what symbols lead to that this image defines, unless another image's definition wins.
    pub(crate) fn with_symbols(mut self, code: &CodeSpace<'_>, relocations: &[LoaderRelocation]) -> Self {
        let symbols = relocations.iter().filter_map(|relocation| match relocation.action {
            LoaderAction::Symbolic(Some(target)) => Some((relocation.place, target)),
            _ => None,
        });
        self.0.extend(symbols.filter(|(_, target)| code.arena_of(*target).is_some()));
        self.0.par_sort_unstable();
        self
    }

    /// The addresses outside of arenas that the loader stores.
    pub(crate) fn of_data(code: &CodeSpace<'_>, relocations: &[LoaderRelocation]) -> Self {
        let stored = relocations.iter().filter_map(|relocation| match relocation.action {
            LoaderAction::Relative(target) | LoaderAction::Symbolic(Some(target)) => {
                Some((relocation.place, target))
            }
            _ => None,
        });
        let mut by_place: Vec<_> = stored.filter(|(_, target)| code.arena_of(*target).is_none()).collect();
        by_place.par_sort_unstable();
        Self(by_place)
    }
}
