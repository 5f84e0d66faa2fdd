//! Functions that were aligned on purpose still are.
//!
//! What a program keeps in the low bits of a function's address is stated nowhere. That the bits were zero on purpose is: an
//! assembler that aligns to 2^k skips fewer than 2^k bytes, so filler of n bytes between two functions was put there for an
//! alignment above n. If the address has it, it is demanded of the new one: from twice what x86-64 compilers give to all
//! functions on in any case, and below that of functions whose addresses something takes, where most of the file's functions
//! are aligned so. Where they are not, a hole that an earlier move left would prove as much.

use super::elf_view::ElfView;
use super::padding::padding_length;
use super::pair::{ImagePair, Ledger};
use super::recover::{AddressMoves, Move};
use super::report::{Check, Difference};
use crate::address::Address;

/// Twice what compilers give to functions that ask for nothing.
const ASKED_FOR: u64 = 32;

/// The largest alignment that functions ask for: a page.
const LARGEST: u64 = 4096;

/// Share of the functions that must be aligned so for filler to tell of less than [`ASKED_FOR`]: numerator, denominator.
const MOST: (usize, usize) = (3, 4);

/// What the old file's functions are aligned to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alignment {
    /// The largest power of two below [`ASKED_FOR`] that most functions have.
    common: u64,
}

impl Alignment {
    /// Of the functions of the old image.
    pub(super) fn of(moves: &AddressMoves) -> Self {
        let is_common = |level: &u64| {
            let aligned = moves.iter().filter(|range| range.old_start.0.is_multiple_of(*level)).count();
            aligned * MOST.1 >= moves.len() * MOST.0
        };
        let below = (0..ASKED_FOR.ilog2()).rev().map(|logarithm| 1 << logarithm);
        Self { common: below.into_iter().find(is_common).unwrap_or(1) }
    }

    /// What a function whose address is taken must stay a multiple of.
    pub(super) fn of_taken(self, old: &ElfView<'_>, moves: &AddressMoves, range: &Move) -> u64 {
        let proven = proven(old, moves, range);
        let parity = if range.old_start.0.is_multiple_of(2) { 2 } else { 1 };
        if proven <= self.common || proven >= ASKED_FOR { proven.max(parity) } else { parity }
    }
}

/// The alignment that filler in front of a function proves; 1 if none does.
fn proven(old: &ElfView<'_>, moves: &AddressMoves, range: &Move) -> u64 {
    let start = range.old_start;
    let Some(previous) = start.0.checked_sub(1).and_then(|before| moves.preceding(Address(before))) else { return 1 };
    let end = previous.old_end();
    let filler = start.0.saturating_sub(end.0);
    if filler == 0 || filler >= LARGEST {
        return 1;
    }
    let alignment = (filler + 1).next_power_of_two();
    let between = old.code_at(end.0, start.0).and_then(|section| section.at(end.0, filler));
    let is_filler = between.is_some_and(|bytes| padding_length(old.processor, bytes, end.0) == bytes.len());
    if is_filler && start.0.is_multiple_of(alignment) { alignment } else { 1 }
}

/// Checks every function of which filler proves that it asked for more than others have.
pub(super) fn check_alignment(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    let mut count = 0;
    for range in pair.moves.iter() {
        let alignment = proven(pair.old, pair.moves, range);
        if alignment < ASKED_FOR {
            continue;
        }
        count += 1;
        if !range.new_start.0.is_multiple_of(alignment) {
            let place = format!("the function at {}, which padding shows to be aligned", range.old_start);
            let expected = format!("a multiple of {alignment}");
            let found = range.new_start.to_string();
            ledger.findings.differs(Difference::new(Check::Functions, None, place, expected, found));
        }
    }
    ledger.findings.checked(Check::Functions, "aligned functions", count);
}
