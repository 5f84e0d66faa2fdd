//! Many traces as one file's worth: all of them, or a fair sample of each image's.
//!
//! Merging is a monoid: the result depends neither on the order of the files, nor on how often one is given, nor on
//! whether merged files are merged again.

use std::collections::BTreeMap;
use std::path::PathBuf;

use layout_algos::sample::{Priority, Sample};

use super::{Draw, Strata, Trace, identity_of, text};
use reorder_base::error::{Error, Result};
use reorder_base::hint::{Hint, SampledGroups};

/// What is kept of merged traces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeRequest {
    /// The most traces that are kept of each stratum; `None` keeps all.
    pub capacity: Option<u64>,
    /// Which traces compete with each other. Samples can be merged again with their own strata only.
    pub strata: Strata,
    /// Decides which traces are kept. Samples can be merged again with the seed that drew them only.
    pub seed: u64,
}

/// Build-id, path, and words of the command line where these tell traces apart.
type Stratum = (Option<Vec<u8>>, Option<PathBuf>, Vec<Vec<u8>>);

/// Merged traces in the making.
#[derive(Debug)]
pub struct Merge {
    capacity: usize,
    strata: Strata,
    seed: u64,
    /// Traces of different strata do not compete.
    samples: BTreeMap<Stratum, Sample<Recorded>>,
    /// Some input was a sample, or a sample is asked for.
    is_drawn: bool,
    given: u64,
    weightless: u64,
}

/// Merged traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// By stratum, then by priority; each with its identity, and its sample if one was drawn.
    pub traces: Vec<Trace>,
    /// Traces read, repetitions included.
    pub given: u64,
    /// Traces without weight among these: they do not count and are left out.
    pub weightless: u64,
}

impl Merge {
    /// Nothing yet.
    pub fn new(request: MergeRequest) -> Self {
        let capacity =
            request.capacity.map_or(usize::MAX, |capacity| usize::try_from(capacity).unwrap_or(usize::MAX));
        let is_drawn = request.capacity.is_some();
        let MergeRequest { strata, seed, .. } = request;
        Self { capacity, strata, seed, samples: BTreeMap::new(), is_drawn, given: 0, weightless: 0 }
    }

    /// Adds a trace; one without an identity gets the one that its file and contents make, as its file's first.
    ///
    /// # Errors
    /// Traces of a sample that another seed or other strata drew: which traces these would have kept is unknown.
    pub fn add(&mut self, mut trace: Trace) -> Result<()> {
        let identity = identity_of(&trace);
        let draw = trace.draw.take();
        let seed = self.seed;
        if let Some(draw) = draw.filter(|draw| draw.seed != seed) {
            return Err(Error::usage(format!(
                "{} is of a sample that was drawn with the seed {}, not {seed}",
                trace.label(),
                draw.seed
            ))
            .with_hint(Hint::MergeSeed(draw.seed)));
        }
        if draw.is_some_and(|draw| draw.strata != self.strata) {
            let (drawn, groups) = match self.strata {
                Strata::Image => ("command line", SampledGroups::Command),
                Strata::Command => ("image", SampledGroups::Image),
            };
            let message = format!("{} is of a sample that was drawn of each {drawn}", trace.label());
            return Err(Error::usage(message).with_hint(Hint::MergeStrata(groups)));
        }
        self.given += 1;
        self.weightless += u64::from(trace.weight == 0);
        trace.identity = Some(identity);
        trace.source = None;
        let command = match self.strata {
            Strata::Image => Vec::new(),
            Strata::Command => trace.command.clone(),
        };
        let stratum = (trace.image.build_id.clone(), trace.image.path.clone(), command);
        let capacity = self.capacity;
        let sample = self.samples.entry(stratum).or_insert_with(|| Sample::new(capacity, seed));
        if let Some(draw) = draw {
            self.is_drawn = true;
            sample.limit(usize::try_from(draw.capacity).unwrap_or(usize::MAX));
            if let Some(threshold) = draw.threshold {
                sample.leave_out(threshold);
            }
        }
        match Priority::of(seed, identity, trace.weight) {
            Some(priority) if !sample.would_keep(priority) => sample.leave_out(priority),
            _ => sample.insert(identity, trace.weight, Recorded(trace)),
        }
        Ok(())
    }

    /// What was kept.
    pub fn finish(self) -> Merged {
        let (strata, seed) = (self.strata, self.seed);
        let mut traces = Vec::new();
        for sample in self.samples.into_values() {
            let (threshold, capacity) = (sample.threshold(), sample.capacity() as u64);
            let draw = self.is_drawn.then_some(Draw { capacity, strata, seed, threshold });
            traces.extend(sample.into_values().map(|Recorded(trace)| Trace { draw, ..trace }));
        }
        Merged { traces, given: self.given, weightless: self.weightless }
    }
}

/// Ordered by what would be written; equal identities with different contents do not happen unless files were
/// edited, and then it must not matter which comes first.
#[derive(Clone, Debug)]
struct Recorded(Trace);

impl Ord for Recorded {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        text::write(&self.0).cmp(&text::write(&other.0))
    }
}

impl PartialOrd for Recorded {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Recorded {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Recorded {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Merge, MergeRequest};
    use crate::{Event, ImageIdentity, Location, Strata, Trace, text};
    use reorder_base::hint::{Hint, SampledGroups};

    /// Traces of two images; equal contents in different places of the "file" are different recordings.
    fn recordings() -> impl Strategy<Value = Vec<Trace>> {
        let trace = (0u8..3, 0u64..4, prop::collection::vec("[a-e]", 1..4), any::<bool>());
        prop::collection::vec(trace, 0..25).prop_map(|parts| {
            let whole = parts.into_iter().zip(0..).map(|((_, weight, names, is_program), position)| {
                let path = if is_program { "/program" } else { "/library" };
                let image = ImageIdentity { path: Some(path.into()), build_id: None };
                let event = |name: &String| Event::at(Location::Name(name.as_str().into()));
                let events = names.iter().map(event).collect();
                let command = vec![if weight == 1 { b"rare".to_vec() } else { b"usual".to_vec() }];
                Trace { image, weight, events, position, command, ..Trace::default() }
            });
            whole.collect()
        })
    }

    fn merged(request: MergeRequest, traces: &[Trace]) -> String {
        let mut merge = Merge::new(request);
        traces.iter().for_each(|trace| merge.add(trace.clone()).unwrap());
        text::write_all(&merge.finish().traces)
    }

    /// Traces without weight are dropped, and an empty file is not a trace file.
    fn read(merged: &str) -> Vec<Trace> {
        if merged.is_empty() { Vec::new() } else { text::read(merged.as_bytes()).unwrap().traces }
    }

    proptest! {
        #[test]
        fn any_order_and_grouping_gives_the_same_bytes(
            traces in recordings().prop_flat_map(|traces| (Just(traces.clone()), Just(traces).prop_shuffle())),
            capacity in prop::option::of(1u64..8),
            is_by_command in any::<bool>(),
            parts in 1usize..6,
        ) {
            let (traces, shuffled) = traces;
            let strata = if is_by_command { Strata::Command } else { Strata::Image };
            let request = MergeRequest { capacity, strata, seed: 3 };
            let whole = merged(request, &traces);
            // Parts are merged, written, read and merged again, one of them twice.
            let mut again = Vec::new();
            for part in shuffled.chunks(shuffled.len().div_ceil(parts).max(1)) {
                again.extend(read(&merged(request, part)));
            }
            again.extend(read(&merged(request, &shuffled[..shuffled.len().min(3)])));
            again.reverse();
            prop_assert_eq!(merged(request, &again), whole);
        }
    }

    #[test]
    fn samples_of_another_seed_are_refused_with_the_seed_to_use() {
        let trace = |position| {
            let event = Event::at(Location::Name("main".into()));
            Trace { weight: 1, events: vec![event], position, ..Trace::default() }
        };
        let mut drawn = Merge::new(MergeRequest { capacity: Some(1), seed: 5, ..MergeRequest::default() });
        (0..9).for_each(|position| drawn.add(trace(position)).unwrap());
        let kept = drawn.finish();
        assert_eq!((kept.given, kept.traces.len()), (9, 1));
        assert!(kept.traces[0].stands_for() > 1.0, "one of nine stands for more than itself");
        let mut other = Merge::new(MergeRequest { capacity: Some(1), seed: 6, ..MergeRequest::default() });
        let error = other.add(kept.traces[0].clone()).unwrap_err();
        assert_eq!(error.hint, Some(Hint::MergeSeed(5)));
    }

    #[test]
    fn a_rare_command_keeps_its_traces_in_its_own_sample() {
        let trace = |position, command: &str| {
            let event = Event::at(Location::Name("main".into()));
            let command = vec![command.as_bytes().to_vec()];
            Trace { weight: 1, events: vec![event], position, command, ..Trace::default() }
        };
        let drawn = |strata| {
            let mut merge = Merge::new(MergeRequest { capacity: Some(2), strata, seed: 1 });
            (0..500).for_each(|position| merge.add(trace(position, "usual")).unwrap());
            (500..502).for_each(|position| merge.add(trace(position, "rare")).unwrap());
            merge.finish().traces
        };
        let rare = |traces: &[Trace]| traces.iter().filter(|trace| trace.command[0] == b"rare").count();
        let (by_image, by_command) = (drawn(Strata::Image), drawn(Strata::Command));
        assert_eq!((by_image.len(), rare(&by_image)), (2, 0));
        assert_eq!((by_command.len(), rare(&by_command)), (4, 2));
        let mut other = Merge::new(MergeRequest { capacity: Some(2), strata: Strata::Image, seed: 1 });
        let error = other.add(by_command[0].clone()).unwrap_err();
        assert_eq!(error.hint, Some(Hint::MergeStrata(SampledGroups::Command)));
    }
}
