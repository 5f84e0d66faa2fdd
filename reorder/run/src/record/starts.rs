//! Where the functions of an image begin: those that are known before the run, and those that are learned in it.

use std::collections::BTreeMap;
use std::iter;
use std::ops::{Index, Range};

use reorder_base::address::Address;
use reorder_image::basic_blocks::functions_apart;
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::{Function, FunctionTable};
use reorder_system::arch;

/// The place of one breakpoint.
#[derive(Debug)]
pub(super) struct FunctionStart {
    /// In the image.
    pub(super) address: Address,
    /// The function's size in bytes.
    pub(super) size: u64,
    /// It shares no byte with another function.
    pub(super) is_apart: bool,
    /// The function's name, if it has one.
    pub(super) name: Option<Box<[u8]>>,
}

/// The starts of an image, each address once. A start keeps its number.
#[derive(Debug)]
pub(super) struct FunctionStarts {
    /// Those known before the run, ascending; then the learned ones.
    all: Vec<FunctionStart>,
    /// How many were known before the run.
    initial: usize,
    /// Numbers of the learned ones.
    learned: BTreeMap<Address, usize>,
}

impl FunctionStarts {
    /// Those of `functions`, in `file`.
    pub(super) fn of(file: &ElfFile<'_>, functions: &FunctionTable<'_>) -> Self {
        let all = described(file, functions);
        Self { initial: all.len(), all, learned: BTreeMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of the learned start at `address`.
    pub(super) fn learned_at(&self, address: Address) -> Option<usize> {
        self.learned.get(&address).copied()
    }

    /// The number of the last start up to `address`, that one included.
    pub(super) fn last_until(&self, address: Address) -> Option<usize> {
        let initial = self.initial_before(|start| start <= address).checked_sub(1);
        let learned = self.learned.range(..=address).next_back().map(|(_, number)| *number);
        initial.into_iter().chain(learned).max_by_key(|number| self.all[*number].address)
    }

    /// The numbers of all starts from `address` on, by address.
    pub(super) fn from(&self, address: Address) -> impl Iterator<Item = usize> + '_ {
        let mut initial = (self.initial_before(|start| start < address)..self.initial).peekable();
        let mut learned = self.learned.range(address..).peekable();
        iter::from_fn(move || {
            let is_learned = match (initial.peek(), learned.peek()) {
                (Some(initial), Some((address, _))) => **address < self.all[*initial].address,
                (initial, _) => initial.is_none(),
            };
            if is_learned { learned.next().map(|(_, number)| *number) } else { initial.next() }
        })
    }

    /// Adds a start that was not known; gives its number.
    pub(super) fn learn(&mut self, start: FunctionStart) -> usize {
        let number = self.all.len();
        self.learned.insert(start.address, number);
        self.all.push(start);
        number
    }

    /// The functions that were learned, by address.
    pub(super) fn learned(&self) -> impl Iterator<Item = Range<Address>> + '_ {
        self.learned
            .values()
            .map(|number| &self.all[*number])
            .map(|start| start.address..start.address.plus(start.size))
    }

    /// How many of the initial starts come before the first one that is not `early`.
    fn initial_before(&self, early: impl Fn(Address) -> bool) -> usize {
        self.all[..self.initial].partition_point(|start| early(start.address))
    }
}

impl Index<usize> for FunctionStarts {
    type Output = FunctionStart;

    fn index(&self, number: usize) -> &FunctionStart {
        &self.all[number]
    }
}

fn described(file: &ElfFile<'_>, functions: &FunctionTable<'_>) -> Vec<FunctionStart> {
    let mut starts: Vec<FunctionStart> = Vec::with_capacity(functions.len());
    let is_apart = functions_apart(functions);
    // The farthest end of all functions so far, and of those among them that the unwind entries vouch for.
    let (mut end, mut unwind_end) = (Address(0), Address(0));
    for (index, function) in functions.iter() {
        let is_new = starts.last().is_none_or(|last| last.address != function.start);
        if is_new && is_certain(function, end, unwind_end) {
            // A start that is a breakpoint already could not be distinguished from ours.
            if arch::is_aligned(function.start.0)
                && let Some(code) = file.bytes_at(function.start, arch::BREAKPOINT.len() as u64)
                && let Ok(original) = arch::Instruction::try_from(code)
                && !arch::is_breakpoint(original)
            {
                starts.push(FunctionStart {
                    address: function.start,
                    size: function.size(),
                    is_apart: is_apart[index.0 as usize],
                    name: functions.names_at(function.start).next().map(Box::from),
                });
            }
        }
        end = end.max(function.end);
        if function.has_unwind_entry {
            unwind_end = unwind_end.max(function.end);
        }
    }
    starts
}

/// Whether the start of `function` is certainly an instruction: outside all functions before it, or known from an
/// unwind entry and inside a symbol's range only, because sizes of hand-written symbols are often wrong.
fn is_certain(function: &Function, end: Address, unwind_end: Address) -> bool {
    function.start >= end || function.has_unwind_entry && function.start >= unwind_end
}

#[cfg(test)]
mod tests {
    use super::{FunctionStart, FunctionStarts};
    use reorder_base::address::Address;
    use std::collections::BTreeMap;

    fn start(address: u64) -> FunctionStart {
        FunctionStart { address: Address(address), size: 4, is_apart: true, name: None }
    }

    #[test]
    fn learned_starts_stand_in_their_place_and_keep_their_numbers() {
        let all = vec![start(0x10), start(0x20), start(0x40)];
        let mut starts = FunctionStarts { initial: all.len(), all, learned: BTreeMap::new() };
        assert_eq!((starts.learn(start(0x50)), starts.learn(start(0x30))), (3, 4));
        let from = |address| starts.from(Address(address)).collect::<Vec<_>>();
        assert_eq!(from(0), [0, 1, 4, 2, 3]);
        assert_eq!(from(0x21), [4, 2, 3]);
        assert_eq!(from(0x51), [0; 0]);
        let until = |address| starts.last_until(Address(address));
        assert_eq!(
            [0xf, 0x10, 0x2f, 0x30, 0x41, 0x60].map(until),
            [None, Some(0), Some(1), Some(4), Some(2), Some(3)]
        );
        let learned: Vec<_> = starts.learned().collect();
        assert_eq!(learned, [Address(0x30)..Address(0x34), Address(0x50)..Address(0x54)]);
    }
}
