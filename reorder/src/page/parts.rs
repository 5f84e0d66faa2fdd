//! Which parts of functions run, and where they are in both images; and the copies that the second image has.
//!
//! In: the executed blocks of recordings, and the places that the simulation gives them. Out: [`Parts`] by function, without
//! order of execution, and [`Fragment`]s.

use std::collections::BTreeMap;

use layout_algos::score::Span;

use super::PageRequest;
use reorder_base::address::Address;
use reorder_image::functions::FunctionIndex;
use reorder_layout::simulate::Comparison;

/// Places by function, in address order and apart from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places(BTreeMap<FunctionIndex, Vec<Span>>);

/// What runs, in the image and in the second one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) old: Places,
    /// Empty without a second image.
    pub(super) new: Places,
}

/// A copy of consecutive code of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fragment {
    pub(super) function: FunctionIndex,
    /// Bytes from the function's start to the first that is copied.
    pub(super) offset: u64,
    /// Bytes of the original.
    pub(super) size: u64,
    /// Where the copy is.
    pub(super) copy: Span,
}

impl Places {
    /// Where a function runs; empty if it does not.
    pub(super) fn of(&self, function: FunctionIndex) -> &[Span] {
        self.0.get(&function).map_or(&[], Vec::as_slice)
    }

    /// Bytes of all places of a function.
    pub(super) fn bytes(&self, function: FunctionIndex) -> u64 {
        self.of(function).iter().map(|span| span.end.saturating_sub(span.start)).sum()
    }

    fn add(&mut self, function: FunctionIndex, spans: &[Span]) {
        let spans = spans.iter().filter(|span| span.start < span.end);
        self.0.entry(function).or_default().extend(spans);
    }

    fn unite(&mut self) {
        for spans in self.0.values_mut() {
            spans.sort_unstable_by_key(|span| (span.start, span.end));
            let mut apart: Vec<Span> = Vec::with_capacity(spans.len());
            for span in spans.iter() {
                match apart.last_mut().filter(|last| span.start <= last.end) {
                    Some(last) => last.end = last.end.max(span.end),
                    None => apart.push(*span),
                }
            }
            *spans = apart;
        }
    }
}

impl Parts {
    /// A run executes code of `function` that is at `old`, and at `new` in the second image.
    pub(super) fn add(&mut self, function: FunctionIndex, old: Span, new: &[Span]) {
        self.old.add(function, &[old]);
        self.new.add(function, new);
    }

    /// Adds all of `other`.
    pub(super) fn absorb(&mut self, other: &Self) {
        for (ours, theirs) in [(&mut self.old, &other.old), (&mut self.new, &other.new)] {
            theirs.0.iter().for_each(|(function, spans)| ours.add(*function, spans));
        }
    }

    /// Unites places that overlap or touch.
    pub(super) fn united(mut self) -> Self {
        self.old.unite();
        self.new.unite();
        self
    }
}

impl PageRequest<'_> {
    /// Whether functions are shown by their parts: some recording has basic blocks, or the second image has copies. Two builds are
    /// compared by whole functions.
    pub(super) fn has_parts(&self) -> bool {
        self.has_blocks()
            || matches!(self.comparison, Some(Comparison::Image(placement)) if !placement.moves().copies().is_empty())
    }

    /// Whether blocks of some recording are shown.
    pub(super) fn has_blocks(&self) -> bool {
        let mut traces = self.scenarios.iter().flat_map(|scenario| &scenario.traces);
        self.other_build().is_none() && traces.any(|trace| !trace.blocks.is_empty())
    }

    /// The copies of the second image, by function and place in it.
    pub(super) fn fragments(&self) -> Vec<Fragment> {
        let Some(Comparison::Image(placement)) = self.comparison else { return Vec::new() };
        let moves = placement.moves();
        let fragment = |copy: &reorder_verify::PlacedCopy| {
            let original: Address = moves.unmap(copy.original);
            let function = self.functions.containing(original)?;
            let offset = original.0.checked_sub(self.functions.get(function).start.0)?;
            let copied = Span { start: copy.copy.0, end: copy.copy.0.saturating_add(copy.copy_size) };
            Some(Fragment { function, offset, size: copy.size, copy: copied })
        };
        let mut fragments: Vec<Fragment> = moves.copies().iter().filter_map(fragment).collect();
        fragments.sort_unstable();
        fragments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, end: u64) -> Span {
        Span { start, end }
    }

    #[test]
    fn parts_of_several_runs_are_counted_once() {
        let (one, other) = (FunctionIndex(1), FunctionIndex(2));
        let mut parts = Parts::default();
        parts.add(one, span(30, 40), &[span(100, 110), span(5, 5)]);
        parts.add(one, span(10, 20), &[]);
        let mut run = Parts::default();
        run.add(one, span(15, 30), &[span(90, 95)]);
        run.add(other, span(50, 51), &[span(50, 51)]);
        parts.absorb(&run);
        let parts = parts.united();
        assert_eq!(parts.old.of(one), [span(10, 40)]);
        assert_eq!(parts.new.of(one), [span(90, 95), span(100, 110)]);
        assert_eq!((parts.old.bytes(one), parts.new.bytes(one), parts.old.bytes(other)), (30, 15, 1));
        assert_eq!((parts.old.of(FunctionIndex(0)), parts.old.bytes(FunctionIndex(0))), (&[][..], 0));
    }
}
