//! Collects the faults of all runs, classifies them, and takes medians.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::regions::{Content, Files};
use super::{FaultCounts, FaultKind, FaultSource, PlaceFaults, ProcessFaults, RunFaults};
use crate::measure::statistics::median;
use reorder_system::perf_event::SoftwareEvent;

/// What files that were copied for the runs are called, by their copies.
#[derive(Clone, Debug, Default)]
pub(in crate::measure) struct Names(BTreeMap<PathBuf, String>);

impl<'a> FromIterator<(&'a Path, &'a Path)> for Names {
    fn from_iter<I: IntoIterator<Item = (&'a Path, &'a Path)>>(copies: I) -> Self {
        let resolved = |copy: &Path| copy.canonicalize().unwrap_or_else(|_| copy.to_path_buf());
        Self(copies.into_iter().map(|(copy, shown)| (resolved(copy), shown.display().to_string())).collect())
    }
}

/// A file, empty for none, and a kind.
type Place = (String, FaultKind);
/// The faults of one run.
type Counts = BTreeMap<Place, u64>;

/// The runs of all programs.
#[derive(Debug, Default)]
pub(in crate::measure) struct ProcessSeries {
    files: Files,
    sources: BTreeSet<FaultSource>,
    /// Of each program, the old one first.
    sides: [Side; 2],
}

#[derive(Debug, Default)]
struct Side {
    major: Vec<Counts>,
    all: Vec<Counts>,
}

impl ProcessSeries {
    /// Adds a run of program `index`.
    pub(in crate::measure) fn push(
        &mut self,
        index: usize,
        event: SoftwareEvent,
        run: &RunFaults,
        names: &Names,
    ) {
        let is_major = event == SoftwareEvent::MajorFaults;
        if is_major && run.source == FaultSource::PageTable {
            return;
        }
        let counts = self.classified(run, names);
        self.sources.insert(run.source);
        if let Some(side) = self.sides.get_mut(index) {
            let runs = if is_major { &mut side.major } else { &mut side.all };
            runs.push(counts);
        }
    }

    fn classified(&mut self, run: &RunFaults, names: &Names) -> Counts {
        let mut counts = Counts::new();
        for &address in &run.addresses {
            let at = run.regions.partition_point(|region| region.range.end <= address);
            let region = run.regions.get(at).filter(|region| region.range.contains(&address));
            let place =
                match region.map(|region| (&region.content, address.distance_from(region.range.start))) {
                    None => (String::new(), FaultKind::Unmapped),
                    Some((Content::Anonymous, _)) => (String::new(), FaultKind::HeapAndStack),
                    Some((Content::Kernel, _)) => (String::new(), FaultKind::Kernel),
                    Some((Content::File { path, offset, is_writable }, within)) => {
                        let kind = self.files.kind_at(path, offset.saturating_add(within), *is_writable);
                        let name = names.0.get(path).cloned().unwrap_or_else(|| path.display().to_string());
                        (name, kind)
                    }
                };
            *counts.entry(place).or_default() += 1;
        }
        if run.of_others > 0 {
            counts.insert((String::new(), FaultKind::OtherProcesses), run.of_others as u64);
        }
        counts
    }

    /// The medians; `None` without any run that could be seen.
    pub(in crate::measure) fn conclude(&self) -> Option<ProcessFaults> {
        let [old, _] = &self.sides;
        let runs = old.all.len();
        let source = *self.sources.last().filter(|_| runs > 0)?;
        let places: BTreeSet<&Place> = self
            .sides
            .iter()
            .flat_map(|side| side.major.iter().chain(&side.all))
            .flat_map(Counts::keys)
            .collect();
        let kinds: BTreeSet<FaultKind> = places.iter().map(|(_, kind)| *kind).collect();
        let names: BTreeSet<&String> =
            places.iter().map(|(name, _)| name).filter(|name| !name.is_empty()).collect();
        let kinds = kinds.into_iter().map(|kind| self.at(kind, |place| place.1 == kind)).collect();
        let mut files: Vec<PlaceFaults<String>> =
            names.into_iter().map(|name| self.at(name.clone(), |place| place.0 == *name)).collect();
        let key = |file: &PlaceFaults<String>| (file.old.major.unwrap_or_default(), file.old.all);
        files.sort_by(|one, other| {
            let (one_key, other_key) = (key(one), key(other));
            let by_count = other_key.0.total_cmp(&one_key.0).then(other_key.1.total_cmp(&one_key.1));
            by_count.then_with(|| one.place.cmp(&other.place))
        });
        Some(ProcessFaults { source, runs, total: self.at("all".to_owned(), |_| true), kinds, files })
    }

    /// The medians of the faults in the places that `is_there` accepts.
    fn at<P>(&self, place: P, is_there: impl Fn(&Place) -> bool) -> PlaceFaults<P> {
        let [old, new] = &self.sides;
        let counts = |side: &Side| FaultCounts {
            major: median_where(&side.major, &is_there),
            all: median_where(&side.all, &is_there).unwrap_or_default(),
        };
        let new = (!new.all.is_empty()).then(|| counts(new));
        PlaceFaults { place, old: counts(old), new }
    }
}

fn median_where(runs: &[Counts], is_there: &impl Fn(&Place) -> bool) -> Option<f64> {
    let sum = |counts: &Counts| {
        counts.iter().filter(|(place, _)| is_there(place)).map(|(_, count)| count).sum::<u64>() as f64
    };
    median(runs.iter().map(sum).collect())
}
