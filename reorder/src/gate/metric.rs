//! The figures of an image, under the keys that limits and baselines use.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Page faults of a scenario, simulated; parts are memory models.
    Faults,
    /// Bytes of the functions that a scenario runs.
    StartupBytes,
    /// Functions that a scenario runs.
    StartupFunctions,
    /// Bytes of code in the image.
    TextBytes,
    /// Bytes of the file.
    FileBytes,
    /// Bytes of the file after compression; parts are compressors and block sizes.
    Compressed,
    /// Compressed bytes of the code of one tier; parts are tiers, each with its compressor.
    CompressedCode,
    /// Bytes of a delta from another build to this one.
    DeltaBytes,
    /// Functions that cannot be moved.
    PinnedFunctions,
    /// Share of the traces' events that were found in the image.
    TraceCoverage,
    /// Share of the order file's lines that name a function of the image.
    OrderCoverage,
    /// Time of a run, measured.
    WallMilliseconds,
    /// Page faults that waited for the disk, measured.
    MajorFaults,
    /// Text pages that a scenario touches, measured.
    PagesTouched,
}

impl Metric {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 14] = [
        Self::Faults,
        Self::StartupBytes,
        Self::StartupFunctions,
        Self::TextBytes,
        Self::FileBytes,
        Self::Compressed,
        Self::CompressedCode,
        Self::DeltaBytes,
        Self::PinnedFunctions,
        Self::TraceCoverage,
        Self::OrderCoverage,
        Self::WallMilliseconds,
        Self::MajorFaults,
        Self::PagesTouched,
    ];

    /// As in `reorder.toml` and in baselines.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Faults => "faults",
            Self::StartupBytes => "startup-bytes",
            Self::StartupFunctions => "startup-functions",
            Self::TextBytes => "text-bytes",
            Self::FileBytes => "file-bytes",
            Self::Compressed => "compressed",
            Self::CompressedCode => "compressed-code",
            Self::DeltaBytes => "delta-bytes",
            Self::PinnedFunctions => "pinned-functions",
            Self::TraceCoverage => "trace-coverage",
            Self::OrderCoverage => "order-coverage",
            Self::WallMilliseconds => "wall-milliseconds",
            Self::MajorFaults => "major-faults",
            Self::PagesTouched => "pages-touched",
        }
    }

    /// For people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Faults => "page faults",
            Self::StartupBytes => "bytes that run",
            Self::StartupFunctions => "functions that run",
            Self::TextBytes => "text",
            Self::FileBytes => "file",
            Self::Compressed => "compressed",
            Self::CompressedCode => "code, compressed",
            Self::DeltaBytes => "delta from the old build",
            Self::PinnedFunctions => "pinned functions",
            Self::TraceCoverage => "trace events found",
            Self::OrderCoverage => "order file lines found",
            Self::WallMilliseconds => "time, measured",
            Self::MajorFaults => "major faults, measured",
            Self::PagesTouched => "pages touched, measured",
        }
    }

    /// What a value counts.
    #[must_use]
    pub fn unit(self) -> Unit {
        match self {
            Self::Faults | Self::MajorFaults => Unit::Faults,
            Self::StartupBytes
            | Self::TextBytes
            | Self::FileBytes
            | Self::Compressed
            | Self::CompressedCode
            | Self::DeltaBytes => Unit::Bytes,
            Self::StartupFunctions | Self::PinnedFunctions => Unit::Functions,
            Self::TraceCoverage | Self::OrderCoverage => Unit::Percent,
            Self::WallMilliseconds => Unit::Milliseconds,
            Self::PagesTouched => Unit::Pages,
        }
    }

    /// Whether scenarios have it.
    #[must_use]
    pub(crate) fn is_of_scenarios(self) -> bool {
        matches!(
            self,
            Self::Faults
                | Self::StartupBytes
                | Self::StartupFunctions
                | Self::WallMilliseconds
                | Self::MajorFaults
                | Self::PagesTouched
        )
    }

    /// Whether a higher value is better.
    #[must_use]
    pub(crate) fn higher_is_better(self) -> bool {
        self.unit() == Unit::Percent
    }

    /// The limit of the metric unless one is configured.
    #[must_use]
    pub(crate) fn default_limit(self) -> Option<&'static str> {
        match self {
            Self::Faults => Some("+1 %"),
            // In a small program, one constant more is a percent of what a compressor makes of it.
            Self::TextBytes | Self::FileBytes | Self::Compressed => Some("+1 % or +256"),
            Self::TraceCoverage | Self::OrderCoverage => Some("-2"),
            _ => None,
        }
    }
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Page faults, the mean over the recordings of a scenario.
    Faults,
    /// Bytes.
    Bytes,
    /// Functions.
    Functions,
    /// Hundredths of a whole.
    Percent,
    /// Milliseconds.
    Milliseconds,
    /// Pages of 4 KiB.
    Pages,
}

/// Which figure of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Key {
    /// What kind.
    pub metric: Metric,
    /// A memory model, a compressor with its block size, or a tier with its compressor: `linux-4k`, `zstd`, `zstd.64k`,
    /// `recorded.gzip`; empty for kinds without.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Which scenario; absent for figures of the image, and for sums over all scenarios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
}

impl Key {
    /// A figure of the whole image.
    #[must_use]
    pub fn of_image(metric: Metric, part: &str) -> Self {
        Self { metric, part: part.to_owned(), scenario: None }
    }

    /// A figure of one scenario.
    #[must_use]
    pub fn of_scenario(metric: Metric, part: &str, scenario: &str) -> Self {
        Self { metric, part: part.to_owned(), scenario: Some(scenario.to_owned()) }
    }

    /// As limits name it: `faults.linux-4k`.
    #[must_use]
    pub fn path(&self) -> String {
        match self.part.as_str() {
            "" => self.metric.key().to_owned(),
            part => format!("{}.{part}", self.metric.key()),
        }
    }
}

/// `faults.linux-4k of status`
impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.path())?;
        self.scenario.as_ref().map_or(Ok(()), |scenario| write!(formatter, " of {scenario}"))
    }
}

/// A figure with its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// Which.
    #[serde(flatten)]
    pub key: Key,
    /// In the unit of its metric; rounded to thousandths.
    pub value: f64,
    /// No layout of whole functions has less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<f64>,
}

impl Figure {
    /// A figure without a bound.
    #[must_use]
    pub fn new(key: Key, value: f64) -> Self {
        Self { key, value: rounded(value), lower_bound: None }
    }

    /// The figure with its bound.
    #[must_use]
    pub(crate) fn with_bound(self, bound: f64) -> Self {
        Self { lower_bound: Some(rounded(bound)), ..self }
    }
}

/// Rounds to thousandths, so that means of several recordings do not differ in irrelevant digits.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
