//! Words of data right before an AArch64 function, which must move with it.
//!
//! Checked calls read a word or two before the function that they call. The image does not state which words those are, so
//! their use decides: words without any reference, after which control would run into the function, are not code, and only
//! the function's callers can read them.

use std::collections::BTreeSet;
use std::ops::Range;

use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};
use goblin::elf::sym::STT_SECTION;
use rayon::prelude::*;

use crate::aarch64::{Form, NOP, effects, form};
use crate::bytes::u32_at;
use crate::elf::pair::ImagePair;
use crate::elf::symbol_walk::{SymbolView, symbols};
use crate::elf::view::{ElfView, SectionView};
use crate::moves::Move;
use crate::padding::padding_length;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};

/// Bytes of a word.
const WORD: u64 = 4;
/// Words that callers may read: a signature and a hash.
const MAX_DATA: usize = 2;
/// No-operations between them and the function.
const MAX_PATCHABLE: usize = 64;

/// Data that moved with its function.
#[derive(Debug, Default)]
pub(super) struct CarriedData {
    /// In the old image, ascending; each ends where a function starts.
    old: Vec<Range<Address>>,
    /// In the new image, ascending.
    new: Vec<Range<NewAddress>>,
}

impl CarriedData {
    /// Finds such data in all code sections. Data that should have moved with its function and did not is a difference.
    pub(super) fn find(pair: ImagePair<'_>, findings: &mut Findings) -> Self {
        let mut carried = Self::default();
        if pair.old.processor != Processor::Aarch64 {
            return carried;
        }
        let found: Vec<(Range<Address>, Move)> = before_functions(pair).collect();
        let ranges: Vec<Range<Address>> = found.iter().map(|(range, _)| range.clone()).collect();
        let led_to = led_to(pair.old, &ranges);
        for (range, function) in found {
            if led_to.range(range.clone()).next().is_some() {
                continue;
            }
            let new_end = function.new_start;
            let size = range.end.distance_from(range.start);
            let new = NewAddress(new_end.0.wrapping_sub(size))..new_end;
            if is_carried(pair, &range, &new) {
                carried.old.push(range);
                carried.new.push(new);
            } else if runs_into_function(pair.old, &range) {
                findings.differs(Difference::new(
                    Check::Gaps,
                    None,
                    format!("the data before {function}"),
                    "the same data before it, because its callers may read it",
                    "other bytes",
                ));
            }
        }
        carried.new.sort_unstable_by_key(|range| range.start);
        carried
    }

    /// Start of the data that moved with the function at `start` of the old image; `start` itself if there is none.
    pub(super) fn begin_before(&self, start: Address) -> Address {
        let index = self.old.binary_search_by_key(&start, |range| range.end);
        index.map_or(start, |index| self.old[index].start)
    }

    /// The places of the data in the new image.
    pub(super) fn places(&self) -> impl Iterator<Item = Range<NewAddress>> + '_ {
        self.new.iter().cloned()
    }
}

/// The words of data that stand alone before functions that moved.
fn before_functions(pair: ImagePair<'_>) -> impl Iterator<Item = (Range<Address>, Move)> + '_ {
    let moved = pair.moves.iter().filter(|range| range.is_moved());
    moved.filter_map(move |function| {
        let end = function.old_start.0;
        let section = pair.old.code_at(end, function.old_end().0)?;
        let before = pair.moves.preceding(Address(end.checked_sub(1)?)).map_or(0, |range| range.old_end().0);
        let gap = before.max(section.address)..end;
        let bytes = section.at(gap.start, gap.end.checked_sub(gap.start)?)?;
        let padding = padding_length(Processor::Aarch64, bytes, gap.start);
        let words = bytes.get(padding..)?.chunks_exact(4).map(|word| u32_at(word, 0).unwrap_or(0));
        let patchable = words.clone().rev().take_while(|&word| word == NOP).count();
        let data = words.len() - patchable;
        let is_data =
            (1..=MAX_DATA).contains(&data) && patchable <= MAX_PATCHABLE && end.is_multiple_of(WORD);
        is_data.then(|| (Address(gap.start + padding as u64)..function.old_start, *function))
    })
}

/// Whether the same bytes stand at `new`, where no function is.
fn is_carried(pair: ImagePair<'_>, old: &Range<Address>, new: &Range<NewAddress>) -> bool {
    let bytes = |image: &ElfView<'_>, range: Range<u64>| {
        let section = image.code_at(range.start, range.end)?;
        Some(section.at(range.start, range.end.checked_sub(range.start)?)?.to_vec())
    };
    let is_free = |place: u64| pair.moves.containing_new(NewAddress(place)).is_none();
    let old = bytes(pair.old, old.start.0..old.end.0);
    let new = new.start.0..new.end.0;
    old.is_some() && old == bytes(pair.new, new.clone()) && new.step_by(4).all(is_free)
}

/// Whether control would continue after the last word that is not a no-operation.
fn runs_into_function(image: &ElfView<'_>, range: &Range<Address>) -> bool {
    let size = range.end.distance_from(range.start);
    let bytes = |section: &SectionView<'_>| section.at(range.start.0, size).map(<[u8]>::to_vec);
    let bytes = image.section_at(range.start.0).and_then(bytes).unwrap_or_default();
    let words = bytes.chunks_exact(4).rev().filter_map(|word| u32_at(word, 0));
    let last = words.into_iter().find(|&word| word != NOP);
    last.is_some_and(|word| !effects(word).ends)
}

/// The places in `ranges` that an instruction or a symbol leads to.
fn led_to(image: &ElfView<'_>, ranges: &[Range<Address>]) -> BTreeSet<Address> {
    /// Bytes of code per work item.
    const CHUNK: usize = 1 << 18;
    let is_inside = |target: &Address| {
        let after = ranges.partition_point(|range| range.start <= *target);
        after > 0 && *target < ranges[after - 1].end
    };
    let mut found = BTreeSet::new();
    if ranges.is_empty() {
        return found;
    }
    for section in image.code_sections() {
        let chunks = section.bytes.par_chunks(CHUNK).enumerate().flat_map_iter(|(index, code)| {
            let places = (section.address + (index * CHUNK) as u64..).step_by(4);
            let words = code.chunks_exact(4).map(|word| u32_at(word, 0).unwrap_or(0));
            let targets = words.zip(places).filter_map(|(word, place)| match form(word) {
                Form::Plain | Form::Adrp => None,
                kind => Some(Address(kind.target(word, place))),
            });
            targets.filter(is_inside).collect::<Vec<Address>>()
        });
        found.extend(chunks.collect::<Vec<Address>>());
    }
    let names = image.section(b".strtab").map(|section| section.bytes).unwrap_or_default();
    let is_mark = |name: u32| names.get(name as usize) == Some(&b'$');
    // A section symbol names whatever comes first in the section.
    let is_label = |symbol: &SymbolView| symbol.kind != STT_SECTION && !is_mark(symbol.name);
    let named = symbols(image, SHT_SYMTAB).filter(is_label);
    let named = named.chain(symbols(image, SHT_DYNSYM));
    // Labels of the no-operations serve programs that patch them.
    let is_patchable = |place: &Address| {
        let section = image.section_at(place.0);
        section.and_then(|section| u32_at(section.at(place.0, WORD)?, 0)) == Some(NOP)
    };
    let named =
        named.filter(|symbol| symbol.is_defined()).map(|symbol| Address(symbol.value)).filter(is_inside);
    found.extend(named.filter(|place| !is_patchable(place)));
    found
}
