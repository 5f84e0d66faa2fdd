//! What scenarios cost under each model: totals, curves, and the functions in the order of their first execution.
//!
//! A scenario's figures are the means over its recordings; those of all scenarios are the sums of these means. A function's
//! first touch is the earliest in any recording, counted in functions that had run. Curves over time exist only for
//! scenarios of which every recording has times.

use std::collections::BTreeMap;

use layout_algos::score::{Span, lower_bound};
use rayon::prelude::*;

use super::PageRequest;
use super::parts::Parts;
use reorder_image::functions::FunctionIndex;
use reorder_layout::memory::MemoryModel;
use reorder_layout::scenario::Scenario;
use reorder_layout::simulate::Touched;
use reorder_trace::ResolvedTrace;

/// Points of a curve after its origin.
pub(super) const POINTS: usize = 200;

/// One scenario, or all of them together.
#[derive(Clone, Debug, Default)]
pub(super) struct ScenarioResult {
    /// In the order of the models.
    pub(super) models: Vec<ModelResult>,
    /// Mean bytes of the functions that a recording runs.
    pub(super) touched_bytes: f64,
    /// Functions that any recording runs, by first touch.
    pub(super) order: Vec<FirstTouch>,
    /// The latest event in nanoseconds; 0 when a recording has no times, or none of all scenarios has.
    pub(super) nanoseconds: u64,
    /// How many recordings it has.
    pub(super) recordings: usize,
    /// What of these functions runs, and where; none if they are shown whole.
    pub(super) parts: Option<Parts>,
}

/// Curves in faults, each with [`POINTS`] + 1 points; the last one is the total.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModelResult {
    /// Over functions that had run.
    pub(super) by_functions: Curves,
    /// Over the time since the start of the run; empty if a recording has no times.
    pub(super) by_time: Curves,
}

/// What is drawn into one diagram.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Curves {
    /// In the image.
    pub(super) old: Vec<f64>,
    /// In the second image; empty when there is none.
    pub(super) new: Vec<f64>,
    /// What no layout can beat at that point.
    pub(super) bound: Vec<f64>,
}

/// When a function ran first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FirstTouch {
    /// Share of the recording's functions that had run, 2³² being all of them.
    pub(super) share: u64,
    pub(super) function: FunctionIndex,
    /// Since the start of the run; 0 when unknown.
    pub(super) nanoseconds: u64,
}

/// Results of all scenarios together and of each.
pub(super) struct Results {
    /// The sum.
    pub(super) all: ScenarioResult,
    /// In the order given.
    pub(super) scenarios: Vec<ScenarioResult>,
}

/// Simulates all recordings in both layouts.
pub(super) fn simulate(request: &PageRequest<'_>) -> Results {
    let longest = |scenario: &Scenario<'_>| {
        let last = scenario.traces.iter().map(|trace| trace.nanoseconds.last().copied());
        // A recording without times would add all its faults at the end of the axis.
        last.collect::<Option<Vec<u64>>>().and_then(|times| times.into_iter().max()).unwrap_or(0)
    };
    let end_of_all = request.scenarios.iter().map(longest).max().unwrap_or(0);
    let results: Vec<(ScenarioResult, Vec<Curves>)> = request
        .scenarios
        .par_iter()
        .map(|scenario| simulate_scenario(request, scenario, longest(scenario), end_of_all))
        .collect();
    let mut all = ScenarioResult {
        models: request.models.iter().map(|_| ModelResult::nothing(request.comparison.is_some())).collect(),
        nanoseconds: end_of_all,
        recordings: request.scenarios.iter().map(|scenario| scenario.traces.len()).sum(),
        ..ScenarioResult::default()
    };
    for (result, by_time) in &results {
        for ((sum, model), by_time) in all.models.iter_mut().zip(&result.models).zip(by_time) {
            sum.by_functions.add(&model.by_functions, 1.0);
            sum.by_time.add(by_time, 1.0);
        }
        all.touched_bytes += result.touched_bytes;
        if let Some(parts) = &result.parts {
            all.parts.get_or_insert_default().absorb(parts);
        }
    }
    all.parts = all.parts.map(Parts::united);
    all.order = earliest(results.iter().flat_map(|(result, _)| result.order.iter().copied()));
    Results { all, scenarios: results.into_iter().map(|(result, _)| result).collect() }
}

/// The scenario's result, and its curves over a time that ends at `end_of_all`.
fn simulate_scenario(
    request: &PageRequest<'_>,
    scenario: &Scenario<'_>,
    end: u64,
    end_of_all: u64,
) -> (ScenarioResult, Vec<Curves>) {
    let is_compared = request.comparison.is_some();
    let mut models: Vec<ModelResult> =
        request.models.iter().map(|_| ModelResult::nothing(is_compared)).collect();
    let mut common: Vec<Curves> = request.models.iter().map(|_| Curves::nothing(is_compared)).collect();
    let weight_of = |trace: &ResolvedTrace| if scenario.weight() == 0 { 1 } else { trace.weight };
    let starts: f64 = scenario.traces.iter().map(|trace| weight_of(trace) as f64).sum();
    let mut touched_bytes = 0.0;
    let mut parts = request.has_parts().then(Parts::default);
    for trace in &scenario.traces {
        let share = weight_of(trace) as f64 / starts.max(1.0);
        let replay = Replay::new(request, trace);
        touched_bytes += replay.bytes.last().copied().unwrap_or(0) as f64 * share;
        if let Some(parts) = &mut parts {
            replay.add_to(parts);
        }
        for ((model, result), common) in request.models.iter().zip(&mut models).zip(&mut common) {
            let steps = replay.under(model);
            result.by_functions.add(&steps.at(|point| replay.count_at_share(point)), share);
            if end > 0 {
                result.by_time.add(&steps.at(|point| replay.count_at_time(point, end)), share);
                common.add(&steps.at(|point| replay.count_at_time(point, end_of_all)), share);
            }
        }
    }
    let order = earliest(scenario.traces.iter().flat_map(|trace| touches(trace)));
    let recordings = scenario.traces.len();
    let parts = parts.map(Parts::united);
    (ScenarioResult { models, touched_bytes, order, nanoseconds: end, recordings, parts }, common)
}

fn touches(trace: &ResolvedTrace) -> impl Iterator<Item = FirstTouch> {
    let count = trace.functions.len().max(1) as u64;
    trace.functions.iter().enumerate().map(move |(position, &function)| FirstTouch {
        share: ((position as u64) << 32) / count,
        function,
        nanoseconds: trace.nanoseconds.get(position).copied().unwrap_or(0),
    })
}

/// Each function once, by its earliest touch.
fn earliest(touches: impl Iterator<Item = FirstTouch>) -> Vec<FirstTouch> {
    let mut touches: Vec<FirstTouch> = touches.collect();
    touches.sort_unstable_by_key(|touch| (touch.function, touch.share, touch.nanoseconds));
    touches.dedup_by_key(|touch| touch.function);
    touches.sort_unstable();
    touches
}

/// One trace in both layouts.
struct Replay {
    touched: Touched,
    /// Parallel to what is touched.
    functions: Vec<FunctionIndex>,
    /// Bytes touched after each function or block.
    bytes: Vec<u64>,
}

impl Replay {
    fn new(request: &PageRequest<'_>, trace: &ResolvedTrace) -> Self {
        let executed = request.image.executed(std::slice::from_ref(trace), request.functions);
        let touched = Touched::compared(
            request.functions,
            trace,
            executed.as_ref().map(|executed| (executed, 0)),
            request.comparison,
        );
        let blocks = executed.as_ref().and_then(|executed| executed.traces.first());
        let functions = match blocks.filter(|_| touched.is_by_block) {
            Some(blocks) => blocks.iter().map(|block| block.function).collect(),
            None => trace.functions.clone(),
        };
        let bytes = least_after_each(&touched);
        Self { touched, functions, bytes }
    }

    fn add_to(&self, parts: &mut Parts) {
        let new = self.touched.new_places().map(Some).chain(std::iter::repeat(None));
        for ((&function, &old), new) in self.functions.iter().zip(&self.touched.old).zip(new) {
            parts.add(function, old, new.unwrap_or_default());
        }
    }

    fn under(&self, model: &MemoryModel) -> Steps {
        Steps {
            // Code outside of functions counts nowhere on the page: its map shows functions alone.
            old: model.model.faults(self.touched.old.iter().copied()).after_each().to_vec(),
            new: self.touched.new_faults_after_each(model),
            bound: self.bytes.iter().map(|&bytes| lower_bound(bytes, model.model)).collect(),
        }
    }

    fn count_at_share(&self, point: usize) -> usize {
        (self.touched.old.len() * point).div_ceil(POINTS)
    }

    fn count_at_time(&self, point: usize, end: u64) -> usize {
        if point == POINTS {
            return self.touched.old.len();
        }
        let time = u128::from(end) * point as u128 / POINTS as u128;
        self.touched.nanoseconds.partition_point(|&nanoseconds| u128::from(nanoseconds) < time)
    }
}

/// The bytes that must have been touched after each function or block in either image: branches of copies may be shorter.
fn least_after_each(touched: &Touched) -> Vec<u64> {
    let mut bytes = touched_after_each(&touched.old);
    if let Some(new) = touched.new.as_deref().filter(|_| touched.is_by_block) {
        let after = touched_after_each(new);
        let mut count = 0;
        for (bytes, places) in bytes.iter_mut().zip(touched.new_places()) {
            count += places.len();
            let new = if count == 0 { 0 } else { after[count - 1] };
            *bytes = (*bytes).min(new);
        }
    }
    bytes
}

/// Bytes inside at least one of the first `n` spans, for each `n`.
fn touched_after_each(spans: &[Span]) -> Vec<u64> {
    // Disjoint, by start.
    let mut covered: BTreeMap<u64, u64> = BTreeMap::new();
    let mut bytes = 0;
    let after = |span: &Span| {
        let Span { mut start, mut end } = *span;
        while let Some((&from, &until)) = covered.range(..=end).next_back()
            && until >= start
        {
            covered.remove(&from);
            bytes -= until - from;
            start = start.min(from);
            end = end.max(until);
        }
        covered.insert(start, end);
        bytes += end - start;
        bytes
    };
    spans.iter().map(after).collect()
}

/// Faults after each function.
struct Steps {
    old: Vec<u64>,
    new: Option<Vec<u64>>,
    bound: Vec<u64>,
}

impl Steps {
    /// The curves where `count` functions have run at each point.
    fn at(&self, count: impl Fn(usize) -> usize) -> Curves {
        let sample = |steps: &Vec<u64>| {
            let at = |point| count(point).checked_sub(1).and_then(|last| steps.get(last)).copied();
            (0..=POINTS).map(|point| at(point).unwrap_or(0) as f64).collect()
        };
        Curves {
            old: sample(&self.old),
            new: self.new.as_ref().map(sample).unwrap_or_default(),
            bound: sample(&self.bound),
        }
    }
}

impl Curves {
    fn nothing(is_compared: bool) -> Self {
        let zeros = || vec![0.0; POINTS + 1];
        Self { old: zeros(), new: if is_compared { zeros() } else { Vec::new() }, bound: zeros() }
    }

    fn add(&mut self, other: &Self, share: f64) {
        let rows =
            [(&mut self.old, &other.old), (&mut self.new, &other.new), (&mut self.bound, &other.bound)];
        for (sum, addend) in rows {
            sum.iter_mut().zip(addend).for_each(|(sum, value)| *sum += value * share);
        }
    }
}

impl ModelResult {
    fn nothing(is_compared: bool) -> Self {
        Self { by_functions: Curves::nothing(is_compared), by_time: Curves::nothing(is_compared) }
    }

    /// Faults of a whole recording: in the image, in the second one, in the best layout.
    pub(super) fn totals(&self) -> (f64, Option<f64>, f64) {
        let last = |curve: &Vec<f64>| curve.last().copied();
        let Curves { old, new, bound } = &self.by_functions;
        (last(old).unwrap_or(0.0), last(new), last(bound).unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_touched_before_do_not_count_again() {
        let spans = [(0, 10), (20, 30), (5, 25), (40, 41), (0, 50), (60, 60)];
        let spans: Vec<Span> = spans.into_iter().map(|(start, end)| Span { start, end }).collect();
        assert_eq!(touched_after_each(&spans), [10, 20, 30, 31, 50, 50]);
        for count in 0..spans.len() {
            let slow = layout_algos::score::touched_bytes(&spans[..=count]);
            assert_eq!(touched_after_each(&spans)[count], slow);
        }
    }
}
