//! The figures measured of a run, and all their values.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sign_test::Interval;
use super::statistics::{Comparison, Sample};

/// One kind of figure. Pages are of 4 KiB and of the program's own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureKind {
    /// Pages that a run executes or reads.
    TextPagesTouched,
    /// Pages in the page cache after a cold start: touched or read ahead.
    TextPagesCached,
    /// Pages in the page table at the end: touched or mapped by fault-around.
    TextPagesMapped,
    /// Page faults that waited for the disk, of the process and the children it waited for.
    MajorFaults,
    /// Page faults that did not, of the same.
    MinorFaults,
    /// Page faults of all processes of the run from the first instruction on, by the kernel's counter, without those
    /// of loading the program.
    PageFaultsCounted,
    /// Those of them that waited for the disk.
    MajorFaultsCounted,
    /// Those that did not.
    MinorFaultsCounted,
    /// What the process read from the disk, read-ahead included, in KiB.
    KibibytesRead,
    /// How often processes of the run gave up their processor.
    ContextSwitches,
    /// Time on processors, of all processes of the run.
    ProcessorMilliseconds,
    /// From beginning to end.
    WallMilliseconds,
}

impl FigureKind {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 12] = [
        Self::TextPagesTouched,
        Self::TextPagesCached,
        Self::TextPagesMapped,
        Self::MajorFaults,
        Self::MinorFaults,
        Self::PageFaultsCounted,
        Self::MajorFaultsCounted,
        Self::MinorFaultsCounted,
        Self::KibibytesRead,
        Self::ContextSwitches,
        Self::ProcessorMilliseconds,
        Self::WallMilliseconds,
    ];

    /// As in JSON and CSV.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::TextPagesTouched => "text_pages_touched",
            Self::TextPagesCached => "text_pages_cached",
            Self::TextPagesMapped => "text_pages_mapped",
            Self::MajorFaults => "major_faults",
            Self::MinorFaults => "minor_faults",
            Self::PageFaultsCounted => "page_faults_counted",
            Self::MajorFaultsCounted => "major_faults_counted",
            Self::MinorFaultsCounted => "minor_faults_counted",
            Self::KibibytesRead => "kibibytes_read",
            Self::ContextSwitches => "context_switches",
            Self::ProcessorMilliseconds => "processor_milliseconds",
            Self::WallMilliseconds => "wall_milliseconds",
        }
    }

    /// For people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::TextPagesTouched => "text pages touched",
            Self::TextPagesCached => "text pages cached",
            Self::TextPagesMapped => "text pages mapped",
            Self::MajorFaults => "major faults",
            Self::MinorFaults => "minor faults",
            Self::PageFaultsCounted => "page faults, counted",
            Self::MajorFaultsCounted => "major faults, counted",
            Self::MinorFaultsCounted => "minor faults, counted",
            Self::KibibytesRead => "read from the disk, KiB",
            Self::ContextSwitches => "context switches",
            Self::ProcessorMilliseconds => "processor time, ms",
            Self::WallMilliseconds => "wall time, ms",
        }
    }

    /// A value in this kind's default precision.
    #[must_use]
    pub fn shown(self, value: f64) -> String {
        match self {
            Self::ProcessorMilliseconds | Self::WallMilliseconds => format!("{value:.2}"),
            _ => format!("{value:.0}"),
        }
    }
}

/// Values of all rounds of one program.
#[derive(Debug, Default)]
pub(super) struct Series {
    values: BTreeMap<FigureKind, Vec<f64>>,
}

impl Series {
    pub(super) fn push(&mut self, kind: FigureKind, value: f64) {
        self.values.entry(kind).or_default().push(value);
    }

    /// Empty for a figure that could not be measured: it has no value.
    pub(super) fn extend(&mut self, kind: FigureKind, value: Option<f64>) {
        if let Some(value) = value {
            self.push(kind, value);
        }
    }

    /// Removes this figure.
    pub(super) fn drop_kind(&mut self, kind: FigureKind) {
        self.values.remove(&kind);
    }

    fn of(&self, kind: FigureKind) -> &[f64] {
        self.values.get(&kind).map_or(&[], Vec::as_slice)
    }
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Which.
    pub kind: FigureKind,
    /// Its values.
    #[serde(flatten)]
    pub values: Values,
    /// The interval of the median change of a pair of runs, in per cent, at the requested confidence; absent with too few
    /// rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_interval_percent: Option<Interval>,
}

/// Values of one program, or of two.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Values {
    /// One program.
    Alone {
        /// Its values.
        program: Sample,
    },
    /// An old and a new one.
    Compared(Comparison),
}

impl Figure {
    fn of(kind: FigureKind, old: &Series, new: Option<&Series>, confidence: f64) -> Option<Self> {
        match new {
            None => {
                let program = Sample::of(old.of(kind))?;
                Some(Self { kind, values: Values::Alone { program }, change_interval_percent: None })
            }
            // A value that is missing in one round of one program would shift the pairs.
            Some(new) if old.of(kind).len() != new.of(kind).len() => None,
            Some(new) => {
                let comparison = Comparison::of(old.of(kind), new.of(kind))?;
                let change_interval_percent = comparison.change_interval_percent(confidence);
                Some(Self { kind, values: Values::Compared(comparison), change_interval_percent })
            }
        }
    }

    /// Values of each program under its name in tables, old first.
    #[must_use]
    pub fn samples(&self) -> Vec<(&'static str, &Sample)> {
        match &self.values {
            Values::Alone { program } => vec![("program", program)],
            Values::Compared(comparison) => vec![("old", &comparison.old), ("new", &comparison.new)],
        }
    }
}

/// All figures that could be measured, in the order of [`FigureKind::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Figures(pub Vec<Figure>);

impl Figures {
    pub(super) fn of(series: &[Series], confidence: f64) -> Self {
        let Some(old) = series.first() else { return Self::default() };
        let figure = |kind| Figure::of(kind, old, series.get(1), confidence);
        Self(FigureKind::ALL.into_iter().filter_map(figure).collect())
    }

    /// The figure of this kind.
    #[must_use]
    pub fn get(&self, kind: FigureKind) -> Option<&Figure> {
        self.0.iter().find(|figure| figure.kind == kind)
    }

    /// Both programs' values of this kind, where two were measured.
    #[must_use]
    pub fn comparison(&self, kind: FigureKind) -> Option<&Comparison> {
        match &self.get(kind)?.values {
            Values::Compared(comparison) => Some(comparison),
            Values::Alone { .. } => None,
        }
    }

    /// The values of one program: the only one, or the old (0) or new (1) one.
    #[must_use]
    pub fn sample(&self, kind: FigureKind, program: usize) -> Option<&Sample> {
        self.get(kind)?.samples().get(program).map(|(_, sample)| *sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_with_a_missing_value_are_no_figure() {
        let (mut old, mut new) = (Series::default(), Series::default());
        for round in 0..6 {
            old.push(FigureKind::MajorFaults, f64::from(round));
            old.push(FigureKind::WallMilliseconds, 2.0);
            new.push(FigureKind::WallMilliseconds, 1.0);
            new.extend(FigureKind::MajorFaults, (round != 3).then_some(1.0));
        }
        let figures = Figures::of(&[old, new], 0.95);
        assert_eq!(figures.get(FigureKind::MajorFaults), None);
        let wall = figures.get(FigureKind::WallMilliseconds).expect("both have it");
        assert_eq!(wall.change_interval_percent, Some(Interval { low: -50.0, high: -50.0 }));
        assert!(figures.comparison(FigureKind::WallMilliseconds).is_some_and(|wall| wall.is_clear));
    }

    #[test]
    fn keys_are_those_of_json() {
        for kind in FigureKind::ALL {
            assert_eq!(serde_json::to_string(&kind).expect("a name"), format!("\"{}\"", kind.key()));
        }
    }
}
