//! What decoding one atom gives, for any processor.

use crate::code_reference::CodeReference;
use crate::pins::Pin;
use crate::stored_distances::SumBudget;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::refusal::{Refusal, RefusalCode};

/// Longest run of no-operations at an entry; `-fpatchable-function-entry` is used with a few instructions.
pub(crate) const MAX_PATCHABLE_BYTES: u64 = 128;

/// One atom's code, understood or not.
///
/// An atom is what lies between two neighbouring function starts. Guarantee for an atom without a pin: nothing in it
/// depends on where it is, or where anything else is, but through what is listed here.
#[derive(Clone, Debug, Default)]
pub struct DecodedAtom {
    /// Fields of instructions that refer out of the atom, or to a place in it in a form that a move changes (a page).
    pub references: Vec<CodeReference>,
    /// Places in other atoms from which the distance must stay: short branches, literals, falling through the end.
    pub ties: Vec<Address>,
    /// Words of jump tables outside of the code whose distance from the table follows the atom.
    pub table_words: Vec<TableWord>,
    /// Why the atom must stay.
    pub pin: Option<Pin>,
    /// Places in the code that must stay. Of an atom that is not understood, everything that its bytes might refer to:
    /// its bytes are never rewritten, so `references` is empty then.
    pub possible_targets: Vec<Address>,
    /// Functions that a sum to which it goes may lead to, or counts from. Not of ELF images on x86-64.
    pub summed: Vec<Address>,
    /// The atom holds words of a jump table only: it goes where the function goes that is tied to it, or nowhere.
    pub is_table: bool,
    /// A sum that it calls may lead to more places than are tried, so `possible_targets` is not all of them.
    pub calls_anything: bool,
    /// Addresses of functions that it adds numbers to, each once. Of ELF images on AArch64 alone.
    pub sums: Vec<CodeSum>,
}

/// The address of a function with a number added to it, which may have been stored anywhere as the distance to another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeSum {
    /// The function.
    pub base: Address,
    /// How far the number was shifted.
    pub shift: u8,
}

/// Refuses images with code that may call anything: then no function can be moved.
///
/// # Errors
/// A refusal with `code` and the place of the first such atom; `start_of` tells it from the position in `decoded`.
pub(crate) fn check_sums(
    decoded: &[DecodedAtom],
    start_of: impl Fn(usize) -> Address,
    code: RefusalCode,
) -> Result<()> {
    match decoded.iter().position(|atom| atom.calls_anything) {
        Some(index) => Err(beyond_sums(code, start_of(index)).into()),
        None => Ok(()),
    }
}

/// Refuses images with more stored distances than are tried.
///
/// # Errors
/// A refusal with `code` at the start of the text.
pub(crate) fn check_budget(budget: &SumBudget, text: Address, code: RefusalCode) -> Result<()> {
    match budget.is_spent() {
        true => {
            let reason =
                "code names too many functions and tables of numbers: not all sums of the two can be tried";
            Err(Refusal::new(code, reason, "use an order file when linking").at(text).into())
        }
        false => Ok(()),
    }
}

/// The refusal for code whose sums are too many to be tried, for any processor.
pub(crate) fn beyond_sums(code: RefusalCode, start: Address) -> Refusal {
    let reason = "a function calls sums of addresses and stored numbers, too many to be tried";
    Refusal::new(code, reason, "use an order file when linking").at(start)
}

/// A word of a jump table: the distance of a place in code from the table's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableWord {
    /// The word.
    pub place: Address,
    /// Where it leads.
    pub target: Address,
    /// What it counts from.
    pub base: Address,
}
