//! Which functions save a page when they are copied.
//!
//! A copy saves a page where no original on that page runs any more. Some originals run in any case: functions that are entered by
//! an address that cannot be changed, landing pads,
//! code that cannot be copied, code outside of functions. Where all pages of a function also hold such
//! originals, a copy of it saves no page and takes room in the new ones. Pages decide, also where memory is read in larger windows.

use std::collections::BTreeSet;

use layout_algos::score::Span;

use super::placement::Placement;
use super::touched::{block_span, outside_spans, page_numbers};
use reorder_base::address::{Address, NewAddress};
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_trace::{ExecutedBlock, ExecutedBlocks};

/// The functions whose copies save a page of `page_bytes`: in at least one run, some of their executed code is on a page that no
/// original needs once everything is copied as in `placement`.
#[must_use]
pub fn functions_that_save_a_page(
    functions: &FunctionTable<'_>,
    executed: &ExecutedBlocks,
    placement: &Placement<'_>,
    page_bytes: u64,
) -> BTreeSet<FunctionIndex> {
    let copies = placement.copies();
    let mut saving = BTreeSet::new();
    for (number, blocks) in executed.traces.iter().enumerate() {
        let places = placement.of_blocks(functions, blocks);
        let originals = places.iter().flatten().filter(|span| !copies.contains(&NewAddress(span.start)));
        let originals = originals.copied().chain(outside_spans(executed, number));
        let needed: BTreeSet<u64> = originals.flat_map(|span| page_numbers(span, page_bytes)).collect();
        let saves = |block: &&ExecutedBlock| {
            let old = block_span(functions, block);
            let start = placement.moves().map(Address(old.start)).0;
            let span = Span { start, end: start.saturating_add(old.end.saturating_sub(old.start)) };
            page_numbers(span, page_bytes).any(|page| !needed.contains(&page))
        };
        saving.extend(blocks.iter().filter(saves).map(|block| block.function));
    }
    saving
}
