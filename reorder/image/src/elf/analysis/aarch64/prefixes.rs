//! Data before entries that callers read through the pointer that they call: type hashes of checked calls.
//!
//! Checked calls (`-fsanitize=kcfi`, `-fsanitize=function`) compare one word or two before the function, with
//! patchable no-operations between. No record in the file names these words. They are recognised in two ways: as words that
//! stand alone before an entry and that no instruction and no pointer leads to; and by calls that read that far before
//! their target, for a hash may look like padding.

use std::collections::BTreeSet;
use std::ops::Range;

use rayon::prelude::*;

use crate::decode::aarch64::{NOP, Operation, Register, WORD, decode, uses};
use crate::decode::aarch64_gap::filler_length;
use crate::elf::analysis::pointers::CodePointer;
use crate::elf::code::CodeSpace;
use crate::elf::functions::ElfFunctions;
use crate::elf::symbol::Symbol;
use reorder_base::address::Address;

/// Words of data that a compiler puts before an entry: a signature and a hash.
const MAX_DATA: usize = 2;
/// No-operations between them and the entry.
const MAX_PATCHABLE: usize = 64;
/// Instructions between the load of a hash and the call.
const MAX_CHECK: usize = 8;

/// Where the bytes begin that belong to a function though they stand before it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefixes {
    /// Sorted ranges from the first such byte to the function.
    ranges: Vec<Range<Address>>,
}

impl Prefixes {
    /// Finds them all.
    pub(crate) fn find(code: &CodeSpace<'_>, functions: &ElfFunctions<'_>, pointers: &[CodePointer]) -> Self {
        let read = words(code).map(|(start, words)| distance_read(start, &words)).max().unwrap_or(0);
        let mut found = Vec::new();
        let mut covered = Address(0);
        for (_, function) in functions.table.iter() {
            if let Some(arena) = code.arena_of(function.start) {
                let gap = covered.max(arena.start)..function.start;
                if gap.start < gap.end {
                    found.extend(prefix_in(code, gap, read));
                }
            }
            covered = covered.max(function.end);
        }
        let named = functions.symbols.iter().chain(functions.dynamic_symbols.iter());
        let named = named.filter(names_a_place).map(|symbol| symbol.value);
        let by_data = pointers.iter().map(|pointer| pointer.target).chain(named);
        let is_referred_to = referred_to(code, &found, by_data);
        found.retain(|prefix| is_referred_to.range(prefix.clone()).next().is_none());
        Self { ranges: found }
    }

    /// Where the prefix of the function at `start` begins.
    pub(crate) fn of(&self, start: Address) -> Option<Address> {
        let index = self.ranges.binary_search_by_key(&start, |range| range.end).ok()?;
        Some(self.ranges[index].start)
    }
}

/// The prefix at the end of `gap`, of which calls may read the last `read` bytes.
fn prefix_in(code: &CodeSpace<'_>, gap: Range<Address>, read: u64) -> Option<Range<Address>> {
    let bytes = code.bytes(gap.clone());
    if !gap.start.0.is_multiple_of(WORD) || !bytes.len().is_multiple_of(4) {
        return None;
    }
    let filler = filler_length(bytes, gap.start);
    let (words, _) = bytes[filler..].as_chunks::<4>();
    let patchable = words.iter().rev().take_while(|word| u32::from_le_bytes(**word) == NOP).count();
    let data = words.len() - patchable;
    let is_prefix = data > 0 && data <= MAX_DATA && patchable <= MAX_PATCHABLE;
    let by_data = if is_prefix { bytes.len() - filler } else { 0 } as u64;
    // Where more stands there than filler and such words, it is code.
    let may_be_read = is_prefix || filler == bytes.len();
    let by_reading = if may_be_read && read <= bytes.len() as u64 { read } else { 0 };
    let length = by_data.max(by_reading);
    (length > 0).then(|| Address(gap.end.0 - length)..gap.end)
}

/// Places in `candidates` that an instruction, a pointer or a symbol leads to; the no-operations may be listed for patching.
fn referred_to(
    code: &CodeSpace<'_>,
    candidates: &[Range<Address>],
    by_data: impl Iterator<Item = Address>,
) -> BTreeSet<Address> {
    let is_inside = |target: &Address| {
        let after = candidates.partition_point(|range| range.start <= *target);
        after > 0 && *target < candidates[after - 1].end
    };
    if candidates.is_empty() {
        return BTreeSet::new();
    }
    let by_code = words(code).flat_map_iter(|(start, words)| {
        let places = (0..).map(|index| start.plus(index * WORD));
        let operations = words.into_iter().zip(places).map(|(word, place)| decode(word, place));
        operations.filter_map(target_of).filter(is_inside).collect::<Vec<_>>()
    });
    let mut all: BTreeSet<Address> = by_code.collect();
    let is_patchable = |target: Address| {
        let word = code.bytes(target..target.plus(WORD)).first_chunk();
        word.is_some_and(|word| u32::from_le_bytes(*word) == NOP)
    };
    all.extend(by_data.filter(|target| is_inside(target) && !is_patchable(*target)));
    all
}

/// Whether a symbol is more than a mark of where data begins.
fn names_a_place(symbol: &Symbol<'_>) -> bool {
    symbol.defining_section().is_some() && !symbol.is_section() && !symbol.name.starts_with(b"$")
}

fn target_of(operation: Operation) -> Option<Address> {
    match operation {
        Operation::Branch(target)
        | Operation::Call(target)
        | Operation::ConditionalBranch(target)
        | Operation::Adr(_, target)
        | Operation::LoadLiteral(_, target) => Some(target),
        _ => None,
    }
}

/// The furthest that any call reads before its target, in bytes; 0 if none does.
fn distance_read(start: Address, words: &[u32]) -> u64 {
    let loads = words.iter().enumerate().filter_map(|(index, &word)| Some((index, load_before(word)?)));
    let called = loads.filter(|&(index, (register, _))| {
        for (&word, place) in words[index + 1..].iter().take(MAX_CHECK).zip(0..) {
            match decode(word, start.plus(place * WORD)) {
                Operation::CallRegister(called) | Operation::BranchRegister(called) => {
                    return called == register;
                }
                Operation::Call(_) | Operation::Branch(_) | Operation::Return => return false,
                _ if uses(word).writes >> register.0 & 1 == 1 => return false,
                _ => {}
            }
        }
        false
    });
    called.map(|(_, (_, distance))| distance).max().unwrap_or(0)
}

/// `LDUR` of a word before the address in a register: the register, and how far before.
fn load_before(word: u32) -> Option<(Register, u64)> {
    let offset = (word << 11) as i32 >> 23;
    let is_load = word & 0xffe0_0c00 == 0xb840_0000 || word & 0xfff0_0c00 == 0xb850_0000;
    let distance = u64::try_from(-i64::from(offset)).ok()?;
    let is_before_entry =
        distance > 0 && distance.is_multiple_of(WORD) && Register::at(word, 5) != Register::NONE;
    (is_load && is_before_entry).then(|| (Register::at(word, 5), distance))
}

/// All words of functions and between them, in pieces.
fn words<'run>(code: &'run CodeSpace<'_>) -> impl ParallelIterator<Item = (Address, Vec<u32>)> + 'run {
    /// Words of a piece; a check that is cut is one of many.
    const PIECE: usize = 1 << 16;
    let ranges = code.arenas.iter().map(|arena| arena.start..arena.end).chain(code.fixed.iter().cloned());
    let ranges: Vec<Range<Address>> = ranges.collect();
    ranges.into_par_iter().flat_map(move |range| {
        let skipped = range.start.0.wrapping_neg() % WORD;
        let bytes = code.bytes(range.clone()).get(skipped as usize..).unwrap_or_default();
        let start = range.start.plus(skipped);
        bytes.par_chunks(PIECE * 4).enumerate().map(move |(index, piece)| {
            let (words, _) = piece.as_chunks::<4>();
            let words = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
            (start.plus((index * PIECE) as u64 * WORD), words)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_read_before_their_target_tell_how_far() {
        // ldur w16, [x8, #-20]; movk w17, #1; cmp w16, w17; b.eq; brk; blr x8
        let check = [0xb85e_c110, 0x7280_0031, 0x6b11_021f, 0x5400_0040, 0xd430_4500, 0xd63f_0100];
        assert_eq!(distance_read(Address(0x1000), &check), 20);
        // Another register is called; the register is another one by then.
        let mut other = check;
        other[5] = 0xd63f_0120;
        assert_eq!(distance_read(Address(0x1000), &other), 0);
        let mut replaced = check;
        replaced[2] = 0x5280_0028;
        assert_eq!(distance_read(Address(0x1000), &replaced), 0);
        assert_eq!(load_before(0xb840_4110), None, "after the address");
    }
}
