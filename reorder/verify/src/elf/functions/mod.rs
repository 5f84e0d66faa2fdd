//! The instructions of every function, old against new and back.
//!
//! Instructions are compared by processor; the rule for what must follow a function whose end control reaches is the same
//! for all. Functions are checked in parallel; results come in address order. Nothing is kept per instruction.

mod aarch64;
mod signs;
mod x86_64;

pub(super) use aarch64::{formed_entries, references};
pub(super) use signs::{keeps_operand, stated_addresses};
pub(super) use x86_64::falls_through;

use rayon::prelude::*;

use super::dispatch::{Entry, Thunks};
use super::pair::ImagePair;
use crate::aarch64::{ComputedSum, MovedPages};
use crate::elf::view::ElfView;
use crate::moves::Move;
use crate::padding::{padding_length, starts_with_trap};
use crate::processor::Processor;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, FileOffset};

/// Addresses that the code of one function, or of one piece of a gap, computes or loads from; its own literals are loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Naming {
    /// Ascending, each once.
    pub(super) addresses: Vec<Address>,
}

impl Naming {
    /// From a list in any order; `None` if it is empty.
    pub(super) fn new(mut addresses: Vec<Address>) -> Option<Self> {
        addresses.sort_unstable();
        addresses.dedup();
        (!addresses.is_empty()).then_some(Self { addresses })
    }
}

/// A data address that a dispatch may use as the base of a table of four-byte distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableUse {
    /// Address of the table's first word.
    pub(super) base: Address,
    /// Index of the dispatching function in the moves.
    pub(super) owner: u32,
}

/// The result of comparing all functions of an image.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeOutcome {
    /// Instructions decoded in the old image.
    pub(super) instructions: usize,
    /// Address fields compared.
    pub(super) fields: usize,
    /// Functions that cannot be decoded; they are unchanged and did not move.
    pub(super) opaque: usize,
    /// The first difference of each function that has one.
    pub(super) differences: Vec<Difference>,
    /// Addresses outside of code that instructions refer to.
    pub(super) references: Vec<Address>,
    /// AArch64: tables that computed jumps use as their base.
    pub(super) tables: Vec<TableUse>,
    /// Functions to whose addresses code adds an unknown value.
    pub(super) summed: Vec<Address>,
    /// AArch64: addresses of code, each with a table of distances from it.
    pub(super) sums: Vec<ComputedSum>,
    /// AArch64: addresses, each with a table of words that code adds to it, whatever it does with the sum.
    pub(super) distances: Vec<ComputedSum>,
    /// What each function names, unless that is nothing.
    pub(super) naming: Vec<Naming>,
    /// x86-64: indices of functions with computed jumps or calls that may use a table.
    pub(super) dispatching: Vec<u32>,
    /// Functions that may jump to addresses that a table holds.
    pub(super) loading_targets: Vec<u32>,
    /// x86-64: addresses of code that code forms.
    pub(super) formed: Vec<Address>,
    /// x86-64: jumps into the middle of other functions.
    pub(super) entries: Vec<Entry>,
    /// x86-64: the targets of calls that end a function. No code follows them, so these callees do not return.
    pub(super) last_calls: Vec<Address>,
}

impl CodeOutcome {
    fn append(&mut self, mut other: Self) {
        self.instructions += other.instructions;
        self.fields += other.fields;
        self.opaque += other.opaque;
        self.differences.append(&mut other.differences);
        self.references.append(&mut other.references);
        self.tables.append(&mut other.tables);
        self.summed.append(&mut other.summed);
        self.sums.append(&mut other.sums);
        self.distances.append(&mut other.distances);
        self.naming.append(&mut other.naming);
        self.dispatching.append(&mut other.dispatching);
        self.loading_targets.append(&mut other.loading_targets);
        self.formed.append(&mut other.formed);
        self.entries.append(&mut other.entries);
        self.last_calls.append(&mut other.last_calls);
    }
}

/// Compares all functions of `old` with those of `new`.
pub(super) fn compare_functions(images: ImagePair<'_>) -> CodeOutcome {
    /// Functions per work item: enough to hide the cost of an item, few enough to balance large functions.
    const CHUNK: usize = 64;
    let thunks = Thunks::of(images.old, images.moves);
    let comparison = Comparison { images, pages: MovedPages::new(images.moves), thunks };
    let chunks: Vec<CodeOutcome> = images
        .moves
        .as_slice()
        .par_chunks(CHUNK)
        .enumerate()
        .map(|(chunk, ranges)| {
            let mut outcome = CodeOutcome::default();
            let mut scratch = Vec::new();
            for index in chunk * CHUNK..chunk * CHUNK + ranges.len() {
                let difference = comparison.function(index, &mut outcome, &mut scratch);
                outcome.differences.extend(difference);
            }
            outcome.references.sort_unstable();
            outcome.references.dedup();
            outcome.formed.sort_unstable();
            outcome.formed.dedup();
            outcome
        })
        .collect();
    let mut all = CodeOutcome::default();
    for chunk in chunks {
        all.append(chunk);
    }
    all.references.par_sort_unstable();
    all.references.dedup();
    all.formed.par_sort_unstable();
    all.formed.dedup();
    all.summed.sort_unstable();
    all.summed.dedup();
    all
}

/// Compares functions of two images.
struct Comparison<'a> {
    images: ImagePair<'a>,
    /// For AArch64 code.
    pages: MovedPages,
    /// For x86-64 code.
    thunks: Thunks,
}

/// One function in both images.
struct FunctionPair<'a> {
    images: ImagePair<'a>,
    thunks: &'a Thunks,
    index: usize,
    range: &'a Move,
    old_bytes: &'a [u8],
    new_bytes: &'a [u8],
    /// Position of the new bytes.
    new_offset: FileOffset,
}

/// What decoding one function showed.
#[derive(Default)]
struct FunctionShape {
    is_opaque: bool,
    /// Control reaches the end of the range.
    runs_on: bool,
    /// AArch64: tables that computed jumps use as their base.
    tables: Vec<Address>,
    /// x86-64: a computed jump or call may use a table.
    dispatches: bool,
    /// It may jump to addresses that a table holds.
    loads_targets: bool,
}

impl Comparison<'_> {
    /// Checks one function in both directions; gives its first difference.
    fn function(&self, index: usize, outcome: &mut CodeOutcome, scratch: &mut Vec<u8>) -> Option<Difference> {
        let range = &self.images.moves.as_slice()[index];
        let bytes = |image: &ElfView<'_>, start: u64| {
            let section = image.code_at(start, start.wrapping_add(range.size))?;
            let offset = section.offset + (start - section.address);
            Some((offset, offset.checked_add(range.size)?))
        };
        let found = bytes(self.images.old, range.old_start.0).zip(bytes(self.images.new, range.new_start.0));
        let Some(((old_from, old_to), (new_from, new_to))) = found else {
            return Some(Difference::new(
                Check::Functions,
                None,
                range.to_string(),
                "code in the file",
                "none",
            ));
        };
        // Both ranges lie inside section contents, which were checked against the file.
        let pair = FunctionPair {
            images: self.images,
            thunks: &self.thunks,
            index,
            range,
            old_bytes: &self.images.old.bytes[old_from as usize..old_to as usize],
            new_bytes: &self.images.new.bytes[new_from as usize..new_to as usize],
            new_offset: FileOffset(new_from),
        };
        let mut shape = FunctionShape::default();
        let checked = match self.images.old.processor {
            Processor::Aarch64 => pair.check_words(&self.pages, outcome, &mut shape),
            Processor::X86_64 => pair.check_instructions(outcome, &mut shape, scratch),
        };
        if let Err(difference) = checked {
            return Some(difference);
        }
        if shape.is_opaque {
            outcome.opaque += 1;
            return None;
        }
        if shape.dispatches {
            outcome.dispatching.push(index as u32);
        }
        if shape.loads_targets {
            outcome.loading_targets.push(index as u32);
        }
        outcome.tables.extend(shape.tables.iter().map(|&base| TableUse { base, owner: index as u32 }));
        if shape.runs_on { self.successor(index) } else { None }
    }

    /// A function whose end control reaches must still be followed by the same code, with the same padding between.
    fn successor(&self, index: usize) -> Option<Difference> {
        let range = &self.images.moves.as_slice()[index];
        let next = self.images.moves.as_slice().get(index + 1);
        let section = self.images.old.code_at(range.old_start.0, range.old_end().0)?;
        let next = next.filter(|next| section.holds(next.old_start.0, next.old_end().0));
        let follower = next.map_or(section.end(), |next| next.old_start.0);
        let between_size = follower - range.old_end().0;
        let between = |image: &ElfView<'_>, start: u64| {
            let offset = image.offset_of(start)?.0;
            crate::bytes::range(image.bytes, offset, between_size).map(<[u8]>::to_vec)
        };
        let old_between = between(self.images.old, range.old_end().0).unwrap_or_default();
        let processor = self.images.old.processor;
        if starts_with_trap(processor, &old_between) {
            return None;
        }
        let goes_along = next.is_some_and(|next| {
            next.delta() == range.delta()
                && (between_size == 0
                    || between(self.images.new, range.new_end().0).as_ref() == Some(&old_between))
        });
        let is_padded =
            next.is_some() && padding_length(processor, &old_between, range.old_end().0) == old_between.len();
        // Otherwise control runs into code that belongs to no function and never moves.
        let is_kept = goes_along || !is_padded && !range.is_moved();
        (!is_kept).then(|| {
            Difference::new(
                Check::Functions,
                None,
                format!("the end of {range}"),
                "the code that control runs into, right after it",
                next.map_or_else(|| "a function that moved away".to_owned(), |next| format!("{next}")),
            )
        })
    }
}
