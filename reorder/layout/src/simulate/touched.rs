//! What a trace touches of the text, before and after: its executed blocks where it knows them, otherwise its functions.
//!
//! Blocks are in their copies if the new image has any, and where their function is if not.

use std::collections::BTreeMap;
use std::ops::Range;

use layout_algos::score::{FaultCurve, FaultModel, Span, touched_bytes};

use super::placement::Placement;
use super::spans;
use crate::memory::MemoryModel;
use reorder_base::address::{Address, NewAddress};
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_trace::{ExecutedBlock, ExecutedBlocks, ResolvedTrace};
use reorder_verify::AddressMoves;

/// What one trace touches, in order of first execution.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Code of functions in the image of the trace; [`Self::all_old`] has all.
    pub old: Vec<Span>,
    /// Code of functions in the new image, where there is one; [`Self::all_new`] has all. Code that is in several copies has
    /// several spans.
    pub new: Option<Vec<Span>>,
    /// Parallel to `old`: how many spans of `new` come up to and with it; empty without `new`.
    pub(super) new_counts: Vec<usize>,
    /// What of `new` is in copies; absent in an image without copies.
    pub(super) in_copies: Option<Vec<Span>>,
    /// One byte at each place where the run may enter code outside of functions, which never moves.
    pub(super) outside: Vec<Span>,
    /// Nanoseconds since the start of the run, parallel to `old`; empty where they are unknown.
    pub nanoseconds: Vec<u64>,
    /// Some functions are known by their blocks.
    pub is_by_block: bool,
}

impl Touched {
    /// What `trace` touches, which is number `number` of those of `executed`.
    #[must_use]
    pub fn of(
        functions: &FunctionTable<'_>,
        trace: &ResolvedTrace,
        executed: Option<(&ExecutedBlocks, usize)>,
        placement: Option<&Placement<'_>>,
    ) -> Self {
        let executed = executed.filter(|_| !trace.blocks.is_empty());
        let blocks = executed.and_then(|(executed, number)| executed.traces.get(number));
        let times = executed.and_then(|(executed, number)| executed.nanoseconds.get(number));
        let old = Self::spans(functions, trace, blocks.map(Vec::as_slice));
        let mut new_counts = Vec::new();
        let new = placement.map(|placement| {
            let mut new = Vec::with_capacity(old.len());
            let places = match blocks {
                Some(blocks) => placement.of_blocks(functions, blocks),
                None => placement.of_spans(&old),
            };
            for places in places {
                new.extend(places);
                new_counts.push(new.len());
            }
            new
        });
        let copies = placement.map(Placement::copies).filter(|copies| !copies.is_empty());
        let in_copies = copies.map(|copies| inside(new.iter().flatten(), &copies));
        let nanoseconds = times.unwrap_or(&trace.nanoseconds).clone();
        let outside = executed.map_or_else(Vec::new, |(executed, number)| outside_spans(executed, number));
        let is_by_block = blocks.is_some();
        Self { old, new, new_counts, in_copies, outside, nanoseconds, is_by_block }
    }

    /// All that runs in the image of the trace. Code outside of functions comes first: its times are unknown.
    #[must_use]
    pub fn all_old(&self) -> Vec<Span> {
        [self.outside.as_slice(), &self.old].concat()
    }

    /// The same of the new image, where there is one.
    #[must_use]
    pub fn all_new(&self) -> Option<Vec<Span>> {
        self.new.as_ref().map(|new| [self.outside.as_slice(), new].concat())
    }

    /// Faults under `model` of all that runs in the image of the trace, after each span of `old`.
    pub(super) fn old_curve(&self, model: FaultModel) -> FaultCurve {
        model.faults(self.all_old()).after_first(self.outside.len())
    }

    /// The same of the new image, after each span of `new`.
    pub(super) fn new_curve(&self, model: FaultModel) -> Option<FaultCurve> {
        Some(model.faults(self.all_new()?).after_first(self.outside.len()))
    }

    /// The bytes that must be touched in either image: branches of copies may be shorter.
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        let new = self.new.as_deref().map_or(u64::MAX, touched_bytes);
        touched_bytes(&self.old).min(new)
    }

    /// Where the executed code is in the image of the trace.
    fn spans(
        functions: &FunctionTable<'_>,
        trace: &ResolvedTrace,
        blocks: Option<&[ExecutedBlock]>,
    ) -> Vec<Span> {
        match blocks {
            Some(blocks) => blocks.iter().map(|block| block_span(functions, block)).collect(),
            None => spans(functions, trace),
        }
    }

    /// Parallel to `old`: where each of these spans is in the new image; nothing without one.
    pub fn new_places(&self) -> impl Iterator<Item = &[Span]> {
        let new = self.new.as_deref().unwrap_or_default();
        let mut from = 0;
        self.new_counts.iter().map(move |&to| {
            let places = new.get(from..to).unwrap_or_default();
            from = to;
            places
        })
    }

    /// Faults of the functions' code in the new image under `model`, after each span of `old`.
    #[must_use]
    pub fn new_faults_after_each(&self, model: &MemoryModel) -> Option<Vec<u64>> {
        let curve = model.model.faults(self.new.as_ref()?.iter().copied());
        let after = |count: &usize| {
            count.checked_sub(1).and_then(|last| curve.after_each().get(last)).copied().unwrap_or(0)
        };
        Some(self.new_counts.iter().map(after).collect())
    }
}

/// Those of `spans` that begin in `range`.
fn inside<'spans>(spans: impl Iterator<Item = &'spans Span>, range: &Range<NewAddress>) -> Vec<Span> {
    spans.filter(|span| range.contains(&NewAddress(span.start))).copied().collect()
}

/// One byte at each place where the run of trace number `number` of `executed` may enter code outside of functions.
pub(super) fn outside_spans(executed: &ExecutedBlocks, number: usize) -> Vec<Span> {
    let entries = executed.outside.get(number).map_or(&[][..], Vec::as_slice);
    entries.iter().map(|entry| Span { start: entry.0, end: entry.plus(1).0 }).collect()
}

/// Where a block is.
#[must_use]
pub(crate) fn block_span(functions: &FunctionTable<'_>, block: &ExecutedBlock) -> Span {
    let start = functions.get(block.function).start.0.saturating_add(u64::from(block.offset));
    Span { start, end: start.saturating_add(u64::from(block.size)) }
}

/// Where code of one function that was at `span` is in the new image, of which its copies are a part.
pub fn placed(span: Span, moves: &AddressMoves) -> impl Iterator<Item = Span> {
    let places = moves.places(Address(span.start), span.end.saturating_sub(span.start));
    places.into_iter().map(|place| Span { start: place.start.0, end: place.end.0 })
}

/// The numbers of the pages that `span` touches; none of an empty one.
pub(super) fn page_numbers(span: Span, page_bytes: u64) -> Range<u64> {
    match span.start < span.end {
        true => span.start / page_bytes..span.end.div_ceil(page_bytes),
        false => 0..0,
    }
}

/// The pages of `page_bytes` that `trace` touches, by first address, each with the functions of the old image whose code is on
/// it. A page without functions holds only code outside of them. With `placement`, pages are those of the new image. `executed`
/// names the trace by its number; without it, functions count whole.
#[must_use]
pub fn touched_pages(
    functions: &FunctionTable<'_>,
    trace: &ResolvedTrace,
    executed: Option<(&ExecutedBlocks, usize)>,
    placement: Option<&Placement<'_>>,
    page_bytes: u64,
) -> BTreeMap<Address, Vec<FunctionIndex>> {
    let blocks = executed.and_then(|(executed, number)| executed.traces.get(number)).map(Vec::as_slice);
    let touched = Touched::spans(functions, trace, blocks);
    let ran: Vec<FunctionIndex> = match blocks {
        Some(blocks) => blocks.iter().map(|block| block.function).collect(),
        None => trace.functions.clone(),
    };
    let places = match (placement, blocks) {
        (Some(placement), Some(blocks)) => placement.of_blocks(functions, blocks),
        (Some(placement), None) => placement.of_spans(&touched),
        (None, _) => touched.into_iter().map(|span| vec![span]).collect(),
    };
    let outside = executed.map_or_else(Vec::new, |(executed, number)| outside_spans(executed, number));
    let outside = outside.into_iter().flat_map(|span| page_numbers(span, page_bytes));
    let mut pages: BTreeMap<Address, Vec<FunctionIndex>> =
        outside.map(|page| (Address(page.saturating_mul(page_bytes)), Vec::new())).collect();
    for (function, places) in ran.into_iter().zip(places) {
        for place in &places {
            for page in page_numbers(*place, page_bytes) {
                let on_page = pages.entry(Address(page.saturating_mul(page_bytes))).or_default();
                if !on_page.contains(&function) {
                    on_page.push(function);
                }
            }
        }
    }
    pages
}
