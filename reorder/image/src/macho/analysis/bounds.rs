//! Programs that ask where their code is: linkers define `section$start$__TEXT$__text` and `section$end$__TEXT$__text`.
//!
//! The end is not a function and never moves. The start has the address of the first function, and references to the two
//! look the same; but programs that ask for the start ask for the end, too. If both are referred to, the first function
//! stays, so that both meanings remain correct.

use super::data::DataFacts;
use crate::code_reference::{CodeForm, CodeReference};
use crate::macho::file::MachOFile;
use crate::macho::reference::DataForm;
use reorder_base::address::Address;

/// A reference to the end of `__text`, if there is also one to its start that is not a branch.
pub(super) fn named_bounds(
    file: &MachOFile<'_>,
    facts: &DataFacts,
    code: impl Iterator<Item = CodeReference>,
) -> Option<Address> {
    let text = file.text().range();
    // Lists of functions hold distances; these symbols are pointers.
    let is_pointer =
        |form| matches!(form, DataForm::Pointer | DataForm::ChainedAddress | DataForm::ChainedOffset);
    let mut pointers = facts.references.iter().filter(|reference| is_pointer(reference.form));
    let mut has_start = pointers.any(|reference| reference.target == text.start);
    let mut end = facts.end_pointer;
    for reference in code.filter(|reference| !is_branch(file, reference)) {
        has_start |= reference.target == text.start;
        if reference.target == text.end {
            end.get_or_insert(reference.place);
        }
    }
    end.filter(|_| has_start)
}

/// Stubs often follow the functions directly, so branches to the end are common.
fn is_branch(file: &MachOFile<'_>, reference: &CodeReference) -> bool {
    match reference.form {
        CodeForm::Branch26 => true,
        CodeForm::Relative32 { .. } => {
            let opcode = file.bytes_at(Address(reference.place.0.wrapping_sub(2)), 2);
            // call and jmp; jcc.
            opcode.is_some_and(|opcode| matches!(opcode, [_, 0xe8 | 0xe9] | [0x0f, 0x80..=0x8f]))
        }
        _ => false,
    }
}
