//! Recovers where functions went from the two images alone, without trusting whoever wrote the second.
//!
//! Relocating keeps the order of unwind entries and of symbols, so the i-th of the old image is the i-th of the
//! new one. Takes both files; gives [`AddressMoves`]: sorted, disjoint ranges with their old and new start.
//! Guarantees that no two sources disagree, that no two ranges overlap in either image, and that each range stays
//! inside its executable section.

use std::fmt;

use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};
use rayon::prelude::*;

use super::elf_view::ElfView;
use super::symbol_walk::symbols;
use super::unwind_walk::UnwindEntries;
use reorder_base::address::{Address, NewAddress};
use reorder_base::address_index::AddressIndex;
use reorder_base::error::{Error, Result};

/// A function range, or several that overlap, and where it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// First byte in the old image.
    pub old_start: Address,
    /// First byte in the new image.
    pub new_start: NewAddress,
    /// Bytes; never zero.
    pub size: u64,
}

impl Move {
    /// First address behind the range in the old image.
    pub fn old_end(&self) -> Address {
        self.old_start.plus(self.size)
    }

    /// First address behind the range in the new image.
    pub fn new_end(&self) -> NewAddress {
        self.new_start.plus(self.size)
    }

    /// New start minus old start, wrapping.
    pub fn delta(&self) -> u64 {
        self.new_start.0.wrapping_sub(self.old_start.0)
    }

    /// Whether the range changed its address.
    pub fn is_moved(&self) -> bool {
        self.delta() != 0
    }
}

/// The map from old to new addresses: a translation of each function range, the identity elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMoves {
    /// Sorted by old start.
    moves: Vec<Move>,
    /// Positions in `moves`, sorted by new start.
    by_new_start: Vec<u32>,
    /// Of the old starts.
    index: AddressIndex,
    /// Of the new starts, in their order.
    new_index: AddressIndex,
}

impl AddressMoves {
    /// All ranges, moved or not, in the order of their old addresses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Move> {
        self.moves.iter()
    }

    /// All ranges as a slice, sorted by old start.
    pub fn as_slice(&self) -> &[Move] {
        &self.moves
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.moves.len()
    }

    /// Whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.moves.is_empty()
    }

    /// Number of ranges whose address changed.
    pub fn moved(&self) -> usize {
        self.moves.iter().filter(|range| range.is_moved()).count()
    }

    /// Where the byte at `address` went.
    pub fn map(&self, address: Address) -> NewAddress {
        self.containing(address).map_or(NewAddress(address.0), |range| {
            range.new_start.plus(address.distance_from(range.old_start))
        })
    }

    /// Where the byte at `address` came from; the identity outside all ranges.
    pub fn unmap(&self, address: NewAddress) -> Address {
        self.containing_new(address)
            .map_or(Address(address.0), |range| range.old_start.plus(address.distance_from(range.new_start)))
    }

    /// The range that contains `address` of the old image.
    pub fn containing(&self, address: Address) -> Option<&Move> {
        self.preceding(address).filter(|range| address < range.old_end())
    }

    /// The range that contains `address` of the new image.
    pub fn containing_new(&self, address: NewAddress) -> Option<&Move> {
        let after = self.count_up_to_new(address);
        self.by_new_start[..after]
            .last()
            .map(|&at| &self.moves[at as usize])
            .filter(|range| address < range.new_end())
    }

    /// The range that ends exactly at `address` of the old image.
    pub fn ending_at(&self, address: Address) -> Option<&Move> {
        let after = self.moves.partition_point(|range| range.old_start < address);
        self.moves[..after].last().filter(|range| range.old_end() == address)
    }

    /// The last range that starts at or before `address` of the old image.
    pub fn preceding(&self, address: Address) -> Option<&Move> {
        let after = self.index.count_up_to(address.0, |at| self.moves[at].old_start.0);
        self.moves[..after].last()
    }

    /// The first range that starts behind `address` of the old image.
    pub fn following(&self, address: Address) -> Option<&Move> {
        self.moves.get(self.moves.partition_point(|range| range.old_start <= address))
    }

    /// The first range that starts behind `address` of the new image.
    pub fn following_new(&self, address: NewAddress) -> Option<&Move> {
        self.by_new_start.get(self.count_up_to_new(address)).map(|&at| &self.moves[at as usize])
    }

    /// How many ranges start at or before `address` of the new image.
    fn count_up_to_new(&self, address: NewAddress) -> usize {
        self.new_index.count_up_to(address.0, |at| self.moves[self.by_new_start[at] as usize].new_start.0)
    }

    /// All ranges in the order of their new addresses.
    pub fn iter_by_new_start(&self) -> impl ExactSizeIterator<Item = &Move> {
        self.by_new_start.iter().map(|&at| &self.moves[at as usize])
    }

    /// Merges `evidence` (one entry per unwind entry or symbol) into disjoint ranges.
    pub(super) fn from_evidence(mut evidence: Vec<Move>) -> Result<Self> {
        evidence.par_sort_unstable();
        let mut moves: Vec<Move> = Vec::with_capacity(evidence.len());
        for next in evidence {
            match moves.last_mut() {
                Some(last) if next.old_start < last.old_end() => {
                    if next.delta() != last.delta() {
                        return Err(Error::verification(format!(
                            "two descriptions of overlapping code disagree: {last} and {next}"
                        )));
                    }
                    last.size = last.size.max(next.old_end().distance_from(last.old_start));
                }
                _ => moves.push(next),
            }
        }
        moves.shrink_to_fit();
        let count =
            u32::try_from(moves.len()).map_err(|_| Error::malformed(0, "more than 2^32 functions"))?;
        let mut by_new_start: Vec<u32> = (0..count).collect();
        by_new_start.par_sort_unstable_by_key(|&at| moves[at as usize].new_start);
        for pair in by_new_start.windows(2) {
            let (first, second) = (&moves[pair[0] as usize], &moves[pair[1] as usize]);
            if first.new_end() > second.new_start {
                return Err(Error::verification(format!(
                    "two functions overlap in the new image: {first} and {second}"
                )));
            }
        }
        let index = AddressIndex::new(moves.iter().map(|range| range.old_start.0));
        let new_index = AddressIndex::new(by_new_start.iter().map(|&at| moves[at as usize].new_start.0));
        Ok(Self { moves, by_new_start, index, new_index })
    }
}

impl fmt::Display for Move {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} -> {} ({} bytes)", self.old_start, self.new_start, self.size)
    }
}

/// Pairs the functions of the `old` file with those of the `new` one.
///
/// # Errors
/// `Malformed` when a file cannot be read; `Verification` when unwind entries or symbols of the two images do not
/// correspond, disagree about a move, or describe functions that overlap or leave their section.
pub(super) fn recover_moves(old: &[u8], new: &[u8]) -> Result<AddressMoves> {
    moves_between(&ElfView::parse(old)?, &ElfView::parse(new)?)
}

/// [`recover_moves`] for images whose headers are read already.
pub(super) fn moves_between(old: &ElfView<'_>, new: &ElfView<'_>) -> Result<AddressMoves> {
    let mut evidence = Vec::new();
    unwind_evidence(old, new, &mut evidence)?;
    for kind in [SHT_SYMTAB, SHT_DYNSYM] {
        symbol_evidence(old, new, kind, &mut evidence)?;
    }
    AddressMoves::from_evidence(evidence)
}

fn unwind_evidence(old: &ElfView<'_>, new: &ElfView<'_>, evidence: &mut Vec<Move>) -> Result<()> {
    let of = |image| ElfView::section(image, b".eh_frame").into_iter().flat_map(UnwindEntries::of);
    let (mut entries, mut found) = (of(old), of(new));
    loop {
        let (before, after) = match (entries.next().transpose()?, found.next().transpose()?) {
            (None, None) => return Ok(()),
            (Some(before), Some(after)) => (before, after),
            (before, _) => {
                let which = if before.is_some() { "more" } else { "fewer" };
                return Err(Error::verification(format!("there were {which} unwind entries before")));
            }
        };
        if before.size != after.size || before.offset != after.offset {
            return Err(Error::verification(format!(
                "the unwind entry of {:#x} does not correspond to that of {:#x} at the same position",
                before.start, after.start
            )));
        }
        push_evidence(old, new, before.start, after.start, before.size, evidence)?;
    }
}

fn symbol_evidence(old: &ElfView<'_>, new: &ElfView<'_>, kind: u32, evidence: &mut Vec<Move>) -> Result<()> {
    let mut before = symbols(old, kind);
    let mut after = symbols(new, kind);
    loop {
        match (before.next(), after.next()) {
            (None, None) => return Ok(()),
            (Some(before), Some(after)) => {
                let pair = (before.is_sized_function(), after.is_sized_function());
                if pair.0 != pair.1 || before.size != after.size {
                    return Err(Error::verification(format!(
                        "the symbol of {:#x} does not correspond to that of {:#x} at the same position",
                        before.value, after.value
                    )));
                }
                if pair.0 {
                    push_evidence(old, new, before.value, after.value, before.size, evidence)?;
                }
            }
            _ => return Err(Error::verification("the numbers of symbols differ")),
        }
    }
}

/// Records one function if it lies in code; a description of something else must not have changed.
fn push_evidence(
    old: &ElfView<'_>,
    new: &ElfView<'_>,
    before: u64,
    after: u64,
    size: u64,
    evidence: &mut Vec<Move>,
) -> Result<()> {
    let found = Move { old_start: Address(before), new_start: NewAddress(after), size };
    let section = |image: &ElfView<'_>, start: u64| {
        let end = start.checked_add(size)?;
        image.code_at(start, end).map(|section| (section.offset, section.bytes.len()))
    };
    match section(old, before) {
        Some(_) if size == 0 => Ok(()),
        Some(home) if section(new, after) == Some(home) => {
            evidence.push(found);
            Ok(())
        }
        Some(_) => Err(Error::verification(format!("a function left its section: {found}"))),
        None if before == after => Ok(()),
        None => {
            Err(Error::verification(format!("a description of something that is not code changed: {found}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(old: u64, new: u64, size: u64) -> Move {
        Move { old_start: Address(old), new_start: NewAddress(new), size }
    }

    #[test]
    fn overlapping_descriptions_become_one_range() {
        // A signal trampoline's unwind entry starts one byte before its symbol; an alias repeats a range.
        let evidence =
            vec![found(0x11, 0x51, 7), found(0x10, 0x50, 8), found(0x11, 0x51, 9), found(0x30, 0x30, 4)];
        let moves = AddressMoves::from_evidence(evidence).expect("they agree");
        assert_eq!(moves.as_slice(), [found(0x10, 0x50, 10), found(0x30, 0x30, 4)]);
        assert_eq!(moves.moved(), 1);
    }

    #[test]
    fn the_end_of_a_range_does_not_move_with_it() {
        let moves = AddressMoves::from_evidence(vec![found(0x10, 0x50, 8)]).expect("one range");
        assert_eq!(
            (moves.map(Address(0x17)), moves.map(Address(0x18))),
            (NewAddress(0x57), NewAddress(0x18))
        );
        assert_eq!(
            (moves.unmap(NewAddress(0x57)), moves.unmap(NewAddress(0x58))),
            (Address(0x17), Address(0x58))
        );
        assert_eq!(moves.ending_at(Address(0x18)), Some(&found(0x10, 0x50, 8)));
    }

    #[test]
    fn sources_that_disagree_or_collide_are_refused() {
        let disagreeing = vec![found(0x10, 0x50, 8), found(0x14, 0x60, 4)];
        assert!(AddressMoves::from_evidence(disagreeing).is_err());
        let colliding = vec![found(0x10, 0x50, 8), found(0x20, 0x57, 8)];
        assert!(AddressMoves::from_evidence(colliding).is_err());
    }
}
