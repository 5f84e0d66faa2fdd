//! AArch64 code in either format: the references of one atom, and what must stay because of it.
//!
//! An atom is a range of code that moves as a whole: the code between two function starts of a Mach-O image, or a block of
//! an ELF image.

mod compare;
pub mod context;
mod ending;
pub mod fixed;
mod flow;
mod interpret;
mod references;
mod relaxed;
mod split_off;
pub(crate) mod stored_distances;
mod summands;
mod table_targets;
mod tables;
#[cfg(test)]
mod tests;
pub mod value;

use std::collections::BTreeSet;
use std::ops::Range;

use crate::decode::aarch64::{Operation, WORD, decode};
use crate::decoded_atom::DecodedAtom;
pub use crate::mapped_bytes::MappedBytes;
use crate::pins::{Pin, PinReason};
pub use context::CodeContext;
use flow::{Code, FlowFacts, follow};
use reorder_base::address::Address;
use tables::Dispatch;

/// Instructions of `bytes`; bytes after the last whole one are left out.
fn words_of(bytes: &[u8]) -> Vec<u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

fn operations_of(words: &[u32], start: Address) -> Vec<Operation> {
    let places = (0..).map(|index| start.plus(index * WORD));
    words.iter().zip(places).map(|(word, place)| decode(*word, place)).collect()
}

/// Decodes the atom at `atom`; control may also arrive at `entries` inside it.
#[must_use]
pub fn decode_atom(context: &CodeContext<'_>, atom: Range<Address>, entries: &[Address]) -> DecodedAtom {
    let size = atom.end.distance_from(atom.start);
    let bytes = context.image.bytes_at(atom.start, size).unwrap_or_default();
    let words = words_of(bytes);
    let mut result = DecodedAtom::default();
    if !size.is_multiple_of(WORD) || !atom.start.0.is_multiple_of(WORD) || words.is_empty() {
        // Words that the atom shares with its neighbours count as its own.
        let evidence = atom.start;
        return keep(context, atom, Pin { reason: PinReason::NotDecodable, evidence });
    }
    if is_table(&words) {
        result.is_table = true;
        return result;
    }
    let operations = operations_of(&words, atom.start);
    let facts = follow(context, &atom, Code { words: &words, operations: &operations }, entries);
    let mut builder = Builder { taken: BTreeSet::new(), context, atom, words, operations, facts, result };
    builder.build();
    builder.keep_stored_distances();
    builder.result
}

/// The atom stays, and so does all that its words may refer to; words cut by its ends count whole.
#[must_use]
pub fn keep(context: &CodeContext<'_>, atom: Range<Address>, pin: Pin) -> DecodedAtom {
    let mut builder = kept(context, atom);
    builder.keep_stored_distances();
    builder.result.pin = Some(pin);
    builder.result
}

/// All that the words in `range`, which are in no atom, may refer to. Distances that data holds are not searched: the range may be
/// nearly all of the code.
#[must_use]
pub fn possible_targets(context: &CodeContext<'_>, range: Range<Address>) -> Vec<Address> {
    kept(context, range).result.possible_targets
}

/// Where the instructions of `range` begin: code of no function may stand after a few bytes of data.
fn from_first_instruction(range: Range<Address>) -> Range<Address> {
    let start = range.start.plus(range.start.0.wrapping_neg() % WORD);
    start..range.end.max(start)
}

fn kept<'run, 'data>(context: &'run CodeContext<'data>, atom: Range<Address>) -> Builder<'run, 'data> {
    let whole =
        Address(atom.start.0 & !3)..Address(atom.end.0.checked_next_multiple_of(WORD).unwrap_or(atom.end.0));
    let size = whole.end.distance_from(whole.start);
    let words = words_of(context.image.bytes_at(whole.start, size).unwrap_or_default());
    let operations = operations_of(&words, whole.start);
    let facts = FlowFacts::default();
    let mut builder = Builder {
        taken: BTreeSet::new(),
        context,
        atom: whole,
        words,
        operations,
        facts,
        result: DecodedAtom::default(),
    };
    builder.keep_everything(0);
    builder
}

/// Whether all words are small distances, as tables hold them: no instruction that refers to a place has such an upper
/// byte, so the bytes cannot be overlooked code.
fn is_table(words: &[u32]) -> bool {
    let is_small = |word: &u32| matches!(word >> 24, 0 | 0xff);
    words.iter().all(is_small) && words.iter().any(|word| *word != 0)
}

struct Builder<'run, 'data> {
    /// Words that a relaxed reference needs when it becomes a pair again.
    taken: BTreeSet<usize>,
    context: &'run CodeContext<'data>,
    atom: Range<Address>,
    words: Vec<u32>,
    operations: Vec<Operation>,
    facts: FlowFacts,
    result: DecodedAtom,
}

impl Builder<'_, '_> {
    fn place(&self, index: usize) -> Address {
        self.atom.start.plus(index as u64 * WORD)
    }

    fn pin(&mut self, reason: PinReason, evidence: Address) {
        self.result.pin.get_or_insert(Pin { reason, evidence });
    }

    fn build(&mut self) {
        if self.facts.is_excessive {
            // Code that was not followed to its end may hold references that were not seen.
            self.pin(PinReason::UnpairedAddress, self.atom.start);
            self.facts.unexplained.is_of_anything = true;
            self.keep_summands();
            return self.keep_everything(0);
        }
        if let Some(index) = self.opaque_word() {
            if self.facts.unexplained.first.is_some() {
                self.keep_summands();
            }
            return self.keep_everything(index);
        }
        for index in 0..self.words.len() {
            if self.facts.is_reached[index] {
                self.add_references(index);
            }
        }
        self.add_pages();
        let dispatches: Vec<Dispatch> = self.facts.dispatches.iter().map(|(_, dispatch)| *dispatch).collect();
        for dispatch in dispatches {
            self.add_dispatch(dispatch);
        }
        for call in std::mem::take(&mut self.facts.calls) {
            self.keep_targets(call);
        }
        self.result.sums.extend(std::mem::take(&mut self.facts.sums));
        if let Some(index) = self.facts.unexplained.first {
            self.pin(PinReason::UnresolvedJump, self.place(index as usize));
            self.keep_summands();
        }
        if self.facts.runs_over_end {
            self.result.ties.push(self.atom.end);
        }
    }

    /// The first word that makes the atom opaque: either control never reaches it and it might refer to something outside,
    /// or control reaches it and it is not an instruction.
    fn opaque_word(&self) -> Option<usize> {
        (0..self.words.len()).find(|&index| {
            let operation = self.operations[index];
            match self.facts.is_reached[index] {
                true => operation == Operation::Invalid,
                false => self.leaves(operation) || self.may_refer(index, operation),
            }
        })
    }

    fn leaves(&self, operation: Operation) -> bool {
        match operation {
            Operation::Branch(target)
            | Operation::Call(target)
            | Operation::ConditionalBranch(target)
            | Operation::Adr(_, target)
            | Operation::LoadLiteral(_, target) => !self.atom.contains(&target),
            Operation::Adrp(..) => true,
            _ => false,
        }
    }

    /// Whether an unreached word may be the distance from itself to something outside, or half of an address whose other
    /// half was reached.
    fn may_refer(&self, index: usize, operation: Operation) -> bool {
        let word = self.words[index];
        let target = self.place(index).plus(i64::from(word as i32) as u64);
        let is_distance = word != 0 && self.context.is_start_elsewhere(target, &self.atom);
        let is_half = !self.facts.pages.is_empty()
            && matches!(operation, Operation::AddImmediate(..) | Operation::Access(..));
        is_distance || is_half
    }

    /// The atom is copied unchanged, and all that it may refer to stays.
    fn keep_everything(&mut self, evidence: usize) {
        self.pin(PinReason::NotDecodable, self.place(evidence));
        for index in 0..self.words.len() {
            let distance = i64::from(self.words[index] as i32) as u64;
            if self.words[index] != 0 {
                self.result.possible_targets.push(self.place(index).plus(distance));
            }
            match self.operations[index] {
                Operation::Branch(target)
                | Operation::Call(target)
                | Operation::ConditionalBranch(target)
                | Operation::Adr(_, target)
                | Operation::LoadLiteral(_, target) => self.result.possible_targets.push(target),
                Operation::Adrp(_, page) if self.context.shares_page(page) => {
                    self.result.possible_targets.extend(self.context.atoms_on_page(page));
                }
                _ => {}
            }
        }
        self.keep_entries();
        // Control may run past the end into what follows.
        self.result.possible_targets.push(self.atom.end);
        let (text, atom) = (&self.context.text, &self.atom);
        self.result.possible_targets.retain(|target| text.contains(target) && !atom.contains(target));
    }

    /// Words after a place that the atom addresses may be distances from there.
    fn keep_entries(&mut self) {
        let formed = self.operations.iter().filter_map(|operation| match operation {
            Operation::Adr(_, target) if self.atom.contains(target) => {
                Some((target.distance_from(self.atom.start) / WORD) as usize)
            }
            _ => None,
        });
        let bases: BTreeSet<usize> = formed.collect();
        for &base in &bases {
            let next = bases.range(base + 1..).next().copied().unwrap_or(self.words.len());
            let table = self.place(base);
            let words = self.words[base..next].iter().filter(|word| **word != 0);
            let targets = words.map(|word| table.plus(i64::from(*word as i32) as u64));
            self.result.possible_targets.extend(targets);
        }
    }
}
