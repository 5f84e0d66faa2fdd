//! Functions of an image that hardly describes its code: found by following control from the places that the image names.
//!
//! Takes the parsed image and its described functions; gives ranges of addresses. The entry point, constructors and exported
//! functions are starts, and so is what reached code calls. Other pointers of the loader, and addresses that instructions form,
//! may be those of constants: a function begins there only if code from there branches to a function that is known otherwise
//! (`evidence.rs`), or if the pointer lies near a pointer to a function. Plain numbers are no evidence: in images at a fixed
//! address, many equal an address by chance.
//!
//! Recorded runs teach more functions: those that calls through pointers were seen to enter (`extent.rs`). They are taken if they fit
//! the others and the image names them.
//!
//! A range ends with the last instruction that is reached before the next start. Jump tables are not read here: a function
//! with computed jumps is taken to go on up to the filler that linkers put between functions.

mod convention;
mod evidence;
mod extent;
mod learned;
mod roots;
mod search;
mod sound;

use std::ops::Range;

use crate::elf::code::{CodeOffset, CodeSpace};
use crate::elf::file::ElfFile;
use crate::elf::symbol::SymbolTable;
use crate::functions::{Function, MIN_UNKNOWN_BYTES, bytes_of, joined};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::processor::Processor;
use search::Search;

pub use extent::{Extent, extent};

/// Functions are looked for where less than this part of the code is described: one half.
const DESCRIBED_PART: u64 = 2;

/// Images whose code spans more than this many times its bytes are not searched: the search keeps bits for each spanned byte.
const MAX_SPREAD: u64 = 16;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Functions, ascending and disjoint.
    pub(super) functions: Vec<Range<Address>>,
    /// Places in code that known code reads or writes, ascending.
    pub(super) read: Vec<Address>,
}

/// Functions of `file` besides those `functions` that it describes, ascending and disjoint; none where most of the code is described.
/// `learned` are functions that control was seen to enter.
///
/// # Errors
/// Malformed tables of the loader.
pub(super) fn find(
    file: &ElfFile<'_>,
    functions: &[Function],
    dynamic_symbols: &SymbolTable<'_>,
    learned: &[Range<Address>],
) -> Result<Found> {
    // An image whose code spans too much is refused by everything that would use these functions.
    let Ok(code) = CodeSpace::collect(file) else { return Ok(Found::default()) };
    let described = joined(functions.iter().map(|function| function.start..function.end).collect());
    if file.processor != Processor::X86_64 || !is_undescribed(&code, &described) {
        return Ok(Found::default());
    }
    let _phase = tracing::info_span!("follow control").entered();
    let roots = roots::roots(file, &code, functions, dynamic_symbols)?;
    let mut search = Search::new(&code);
    search.read_by(&described);
    search.start_at(&roots.starts);
    search.start_where_likely(&roots.pointed);
    let mut found: Vec<Range<Address>> =
        search.sound_ranges(&described).into_iter().filter(|range| is_apart(&described, range)).collect();
    let learned = search.fitting(learned, &found, &described);
    let pointed = roots.pointed.into_iter().map(|(_, target)| target);
    let mut named: Vec<Address> = roots.starts.into_iter().chain(pointed).collect();
    named.extend(learned::named_by_words(file, &learned));
    let without_learned = found.clone();
    found.extend(learned);
    found.sort_unstable_by_key(|range| range.start);
    let found = search.conventional(found);
    let stated = search.stated_ranges(found, &described, &named);
    // Learned functions that name each other in a long chain cost themselves alone.
    let stated =
        stated.or_else(|| search.stated_ranges(search.conventional(without_learned), &described, &named));
    let read = search.read.iter().map(|offset| code.address(CodeOffset(*offset))).collect();
    Ok(Found { functions: stated.unwrap_or_default(), read })
}

/// Whether none of the `described` ranges, which ascend and are disjoint, shares a byte with `range`.
fn is_apart(described: &[Range<Address>], range: &Range<Address>) -> bool {
    let next = described.partition_point(|described| described.end <= range.start);
    described.get(next).is_none_or(|described| range.end <= described.start)
}

/// Whether most of the code is in no described function.
fn is_undescribed(code: &CodeSpace<'_>, described: &[Range<Address>]) -> bool {
    let total: u64 = code.arenas.iter().map(|arena| arena.end.distance_from(arena.start)).sum();
    let unknown = total.saturating_sub(bytes_of(described));
    let is_dense = code.span() as u64 / MAX_SPREAD <= total;
    is_dense && unknown >= MIN_UNKNOWN_BYTES && unknown > total / DESCRIBED_PART
}
