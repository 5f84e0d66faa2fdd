//! Which functions are worth a copy.
//!
//! A copy saves a page where no original on that page runs any more. Some originals run in any case: functions that are entered by
//! an address that cannot be changed, landing pads, code that cannot be copied. Copies of what shares all its pages
//! with these save nothing, and take room in the new pages.

use std::collections::BTreeSet;
use std::ops::Range;

use layout_algos::score::Span;

use super::placement::Placement;
use super::touched::block_span;
use reorder_base::address::{Address, NewAddress};
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_trace::{ExecutedBlock, ExecutedBlocks};

/// The executed functions some of whose code is on pages that no original needs in one of the runs, when all of them have copies
/// as in `placement`. Pages have `page_bytes`.
#[must_use]
pub fn worth_copying(
    functions: &FunctionTable<'_>,
    executed: &ExecutedBlocks,
    placement: &Placement<'_>,
    page_bytes: u64,
) -> BTreeSet<FunctionIndex> {
    let copies = copies_range(placement);
    let mut worthwhile = BTreeSet::new();
    for blocks in &executed.traces {
        let places = placement.of_blocks(functions, blocks);
        let originals = places.iter().flatten().filter(|span| !copies.contains(&NewAddress(span.start)));
        let needed: BTreeSet<u64> = originals.flat_map(|span| pages(*span, page_bytes)).collect();
        let saves = |block: &&ExecutedBlock| {
            let old = block_span(functions, block);
            let start = placement.moves().map(Address(old.start)).0;
            let span = Span { start, end: start.saturating_add(old.end.saturating_sub(old.start)) };
            pages(span, page_bytes).any(|page| !needed.contains(&page))
        };
        worthwhile.extend(blocks.iter().filter(saves).map(|block| block.function));
    }
    worthwhile
}

fn copies_range(placement: &Placement<'_>) -> Range<NewAddress> {
    let copies = placement.moves().copies();
    let start = copies.iter().map(|copy| copy.copy).min().unwrap_or(NewAddress(0));
    let end = copies.iter().map(|copy| copy.copy.plus(copy.copy_size)).max().unwrap_or(start);
    start..end
}

fn pages(span: Span, page_bytes: u64) -> impl Iterator<Item = u64> {
    span.start / page_bytes..span.end.div_ceil(page_bytes)
}
