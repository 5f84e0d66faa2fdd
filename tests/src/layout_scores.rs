//! Faults and bounds of one layout over a set of runs, for all models that `reorder simulate` knows.

use layout_algos::score::{FaultModel, Span, lower_bound, touched_bytes};
use reorder_layout::memory::default_for_elf;
use serde::{Deserialize, Serialize};

use crate::layout_corpus::{Corpus, Start, StartSet};

/// One layout, or a bound, under one model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelScore {
    /// Name of the model.
    pub model: String,
    /// Sum over all runs.
    pub faults: u64,
    /// Area under the curve: faults so far, mean over a run's functions, then over all runs.
    pub area: f64,
    /// By run.
    pub faults_by_start: Vec<u64>,
    /// By run.
    pub area_by_start: Vec<f64>,
}

/// One layout, or a bound, over one set of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetScore {
    /// Name of the set.
    pub set: String,
    /// In the order of [`default_for_elf`].
    pub models: Vec<ModelScore>,
}

/// Cost of `spans` (by function) for the runs of `set`.
#[must_use]
pub fn layout_score(set: &StartSet, spans: &[Span]) -> SetScore {
    score(set, |start, model| {
        let curve = model.faults(start.functions.iter().map(|&function| spans[function as usize]));
        (curve.total(), curve.mean())
    })
}

/// Lower bound for layouts of whole functions: faults that the bytes of a run's functions need.
#[must_use]
pub fn raw_bound(corpus: &Corpus, set: &StartSet) -> SetScore {
    bound(corpus, set, touched_bytes_of)
}

/// Lower bound for layouts that give every function the alignment it asks for.
#[must_use]
pub fn aligned_bound(corpus: &Corpus, set: &StartSet) -> SetScore {
    bound(corpus, set, aligned_bytes_of)
}

fn bound(corpus: &Corpus, set: &StartSet, bytes: fn(&Corpus, &[u32]) -> u64) -> SetScore {
    score(set, |start, model| {
        let count = start.functions.len();
        // The area needs the bound after each function; a hundred of them give it to within one per cent of the
        // total without a quadratic cost. Rounding down to the last computed one keeps it a bound.
        let step = count.div_ceil(100).max(1);
        let mut area = 0.0;
        let mut so_far = 0;
        for first in (0..count).step_by(step) {
            so_far = lower_bound(bytes(corpus, &start.functions[..=first]), model);
            area += so_far as f64 * (step.min(count - first)) as f64;
        }
        let total = lower_bound(bytes(corpus, &start.functions), model).max(so_far);
        (total, if count == 0 { 0.0 } else { area / count as f64 })
    })
}

fn touched_bytes_of(corpus: &Corpus, functions: &[u32]) -> u64 {
    let spans: Vec<Span> = functions.iter().map(|&function| corpus.spans[function as usize]).collect();
    touched_bytes(&spans)
}

/// Fewest bytes of pages that the functions take up.
///
/// Let some ask for an alignment of at least `a`. After such a function the bytes up to the next multiple of `a` are
/// lost, unless one that asks for less follows it; of those there are only so many, and at best they follow the
/// functions that lose most. Slots end where pages end, so what is lost lies in a touched page. True for each `a`,
/// so the largest counts.
fn aligned_bytes_of(corpus: &Corpus, functions: &[u32]) -> u64 {
    let aligned = |&function: &u32| (corpus.spans[function as usize], corpus.alignment(function));
    aligned_bytes(functions.iter().map(aligned).collect())
}

fn aligned_bytes(mut spans: Vec<(Span, u64)>) -> u64 {
    // Of functions that begin at the same address, only the longest can lose the bytes after it.
    spans.sort_unstable_by_key(|(span, _)| (span.start, std::cmp::Reverse(span.end)));
    spans.dedup_by_key(|(span, _)| span.start);
    let lost = |alignment: u64| {
        let mut paddings: Vec<u64> = spans
            .iter()
            .filter(|(_, own)| *own >= alignment)
            .map(|(span, _)| (span.end - span.start).next_multiple_of(alignment) - (span.end - span.start))
            .collect();
        let others = spans.len() - paddings.len();
        paddings.sort_unstable_by(|one, other| other.cmp(one));
        paddings.iter().skip(others).sum::<u64>()
    };
    let lost = (2..=6).map(|power| lost(1 << power)).max().unwrap_or(0);
    touched_bytes(&spans.iter().map(|(span, _)| *span).collect::<Vec<_>>()) + lost
}

fn score(set: &StartSet, of_start: impl Fn(&Start, FaultModel) -> (u64, f64)) -> SetScore {
    let models = default_for_elf().into_iter().map(|named| {
        let (faults_by_start, area_by_start): (Vec<u64>, Vec<f64>) =
            set.starts.iter().map(|start| of_start(start, named.model)).unzip();
        ModelScore {
            model: named.name,
            faults: faults_by_start.iter().sum(),
            area: area_by_start.iter().sum::<f64>() / area_by_start.len().max(1) as f64,
            faults_by_start,
            area_by_start,
        }
    });
    SetScore { set: set.name.to_owned(), models: models.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fewest pages over all orders of the functions, each at the next address that its alignment allows.
    fn fewest_pages(functions: &mut Vec<(u64, u64)>, placed: usize, cursor: u64, page: u64) -> u64 {
        if placed == functions.len() {
            return cursor.div_ceil(page);
        }
        let mut fewest = u64::MAX;
        for next in placed..functions.len() {
            functions.swap(placed, next);
            let (size, alignment) = functions[placed];
            let end = cursor.next_multiple_of(alignment) + size;
            fewest = fewest.min(fewest_pages(functions, placed + 1, end, page));
            functions.swap(placed, next);
        }
        fewest
    }

    #[test]
    fn no_order_beats_the_aligned_bound() {
        let mut random = layout_algos::random::Random::new(7, &[]);
        let mut tight = 0;
        for _ in 0..300 {
            let mut functions: Vec<(u64, u64)> =
                (0..6).map(|_| (1 + random.below(70), 1 << random.below(6))).collect();
            let spread = |(index, &(size, alignment)): (usize, &(u64, u64))| {
                let start = index as u64 * 1024;
                (Span { start, end: start + size }, alignment)
            };
            let bytes = aligned_bytes(functions.iter().enumerate().map(spread).collect());
            let fewest = fewest_pages(&mut functions, 0, 0, 64);
            assert!(bytes.div_ceil(64) <= fewest, "{functions:?}: {bytes} bytes, {fewest} pages");
            tight += u32::from(bytes.div_ceil(64) == fewest);
        }
        assert!(tight > 150, "the bound is reached only {tight} times");
    }
}
