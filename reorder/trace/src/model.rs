//! What every reader gives: traces of events.
//!
//! One trace is one run of one process in one image; events stand in the order of first execution and are never
//! merged across traces, because clocks and addresses of two processes are unrelated.

use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use layout_algos::sample::{Identity, Priority};
use serde::{Serialize, Serializer};

use crate::blocks::{self, RecordedBlocks};
use reorder_base::address::{Address, RuntimeAddress};
use reorder_base::hexadecimal::encode;
use reorder_image::code_digest::FunctionDigest;

/// One process's first executions in one image.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Trace {
    /// The image that the events lie in.
    pub image: ImageIdentity,
    /// Which of several recorded runs; counts from 1, 0 when the format does not say.
    pub run: u32,
    /// The process id.
    pub process: Option<u32>,
    /// The program and its arguments.
    pub command: Vec<Vec<u8>>,
    /// How many times the trace counts among others.
    pub weight: u64,
    /// What the order of the events rests on.
    pub evidence: Evidence,
    /// Processes that still ran when the recording ended: what they ran later is missing.
    pub left_running: u32,
    /// In order of first execution.
    pub events: Vec<Event>,
    /// The file it was read from.
    pub source: Option<PathBuf>,
    /// The number of traces before it in that file, or among those that were joined with it.
    pub position: u32,
    /// The identity of this recording, if it was stored.
    pub identity: Option<Identity>,
    /// The sample that it was drawn in, if any.
    pub draw: Option<Draw>,
}

/// A sample of traces, as each of its traces remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// How many traces were drawn at most, of each stratum.
    pub capacity: u64,
    /// Which traces competed with each other.
    pub strata: Strata,
    /// What the draw depended on beside the identities.
    pub seed: u64,
    /// The smallest priority that was left out; `None` when no trace was.
    pub threshold: Option<Priority>,
}

/// How traces are divided before some of each part are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Strata {
    /// By image, which is build-id and path.
    #[default]
    Image,
    /// By image and command line: a rare scenario is kept as well as the common ones.
    Command,
}

impl Draw {
    /// Whether this sample can have kept a recording: what it left out has a larger priority.
    pub fn can_hold(&self, identity: Identity, weight: u64) -> bool {
        let priority = Priority::of(self.seed, identity, weight);
        let is_before = |threshold| priority.is_some_and(|priority| priority <= threshold);
        self.capacity > 0 && self.threshold.is_none_or(is_before)
    }
}

impl Trace {
    /// The basic blocks of all its functions.
    pub fn block_count(&self) -> u64 {
        let recorded = self.events.iter().filter_map(|event| event.blocks.as_ref());
        recorded.map(|recorded| recorded.blocks.len() as u64).sum()
    }

    /// [`Trace::stands_for`] as layouts and other systems' files take it; where it is not whole, the nearest.
    pub(crate) fn whole_weight(&self) -> u64 {
        self.stands_for().round() as u64
    }

    /// How many of all traces it represents: its weight, or in a sample the traces it stands for.
    pub fn stands_for(&self) -> f64 {
        let threshold = self.draw.and_then(|draw| draw.threshold);
        threshold.map_or(self.weight as f64, |threshold| threshold.stands_for(self.weight))
    }

    /// Words that tell this trace from others: its file, or its image, run and process.
    pub fn label(&self) -> String {
        if let Some(source) = &self.source {
            return source.display().to_string();
        }
        let process = self.process.map_or_else(String::new, |process| format!(" process {process}"));
        format!("{} run {}{process}", self.image, self.run)
    }
}

/// What the order of a trace's events rests on, from the firmest to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// Every first execution was seen, in order.
    #[default]
    Exact,
    /// The same, but the file has lost its end: later first executions are missing.
    Cut,
    /// An order from a list of unknown origin.
    Listed,
    /// The orders of several runs, blended into one by the program that wrote the file.
    Blended,
    /// Functions in the order of their first samples; short ones are missing.
    Sampled,
    /// The first touch of each page: one function stands for all on its page.
    Pages,
    /// No order at all: how often functions ran, the most frequent first.
    Counts,
}

impl Evidence {
    /// Whether the order of the events is an order of execution.
    pub(crate) fn is_ordered(self) -> bool {
        self != Self::Counts
    }

    /// As in files and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Cut => "cut",
            Self::Listed => "listed",
            Self::Blended => "blended",
            Self::Sampled => "sampled",
            Self::Pages => "pages",
            Self::Counts => "counts",
        }
    }

    /// The evidence of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        use Evidence::{Blended, Counts, Cut, Exact, Listed, Pages, Sampled};
        [Exact, Cut, Listed, Blended, Sampled, Pages, Counts]
            .into_iter()
            .find(|evidence| evidence.name() == name)
    }
}

/// The identity of an image.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ImageIdentity {
    /// Absolute path, as far as it is known.
    pub path: Option<PathBuf>,
    /// GNU build-id, or the UUID of a Mach-O image.
    pub build_id: Option<Vec<u8>>,
}

impl ImageIdentity {
    /// The identity of an image read from `path`, whose build-id or UUID is `build_id`; the path is made absolute when the
    /// file still exists.
    pub fn of(path: &Path, build_id: Option<impl Into<Vec<u8>>>) -> Self {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        Self { path: Some(path), build_id: build_id.map(Into::into) }
    }
}

impl fmt::Display for ImageIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(formatter, "{}", path.display()),
            None => match &self.build_id {
                Some(build_id) => write!(formatter, "image {}", encode(build_id)),
                None => formatter.write_str("unnamed image"),
            },
        }
    }
}

/// The first execution of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Where.
    #[serde(flatten)]
    pub location: Location,
    /// The function's name, when the trace gives one beside the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    /// The function's size in bytes: tells a stale address from a good one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Time since the program's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nanoseconds: Option<u64>,
    /// How often the function ran, where the format counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The format's own clock, without a unit: comparable within one run, also between its images where the
    /// format has one clock for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick: Option<u64>,
    /// Which of the function's basic blocks ran, where that was recorded.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "blocks::serialize")]
    pub blocks: Option<Arc<RecordedBlocks>>,
    /// What the function's code looks like, where that was recorded: finds a function without a name in another build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<FunctionDigest>,
}

impl Event {
    /// An event of which only the place is known.
    pub fn at(location: Location) -> Self {
        Self {
            location,
            name: None,
            size: None,
            nanoseconds: None,
            count: None,
            tick: None,
            blocks: None,
            digest: None,
        }
    }

    /// The name by which the function can be found again in another build.
    pub fn symbol(&self) -> Option<&[u8]> {
        match &self.location {
            Location::Name(name) => Some(name),
            _ => self.name.as_deref(),
        }
    }
}

/// How a format says which function ran.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Location {
    /// The symbol as the format spells it, with the source file before it if it does that.
    Name(Name),
    /// A digest of the symbol.
    NameHash(NameHash),
    /// The function's first address as stated in the image.
    #[serde(rename = "address")]
    Image(Address),
    /// Some address inside the function as stated in the image: a return address, a sample.
    #[serde(rename = "inside_address")]
    Inside(Address),
    /// An address in the process, for formats that carry no load address; possibly inside the function.
    #[serde(rename = "runtime_address")]
    Runtime(RuntimeAddress),
}

/// A digest of a symbol, by which formats save space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NameHash {
    /// The first eight bytes of the MD5 of the name, little endian: all of LLVM.
    Md5(u64),
    /// GCC's profile id: a CRC-32 of the name, for local functions seeded with the source file.
    GccProfileId(u32),
}

impl fmt::Display for NameHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Md5(hash) => write!(formatter, "MD5 {hash:#018x}"),
            Self::GccProfileId(id) => write!(formatter, "GCC profile id {id:#010x}"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(formatter, "{name}"),
            Self::NameHash(hash) => write!(formatter, "{hash}"),
            Self::Image(address) => write!(formatter, "{address}"),
            Self::Inside(address) => write!(formatter, "inside {address}"),
            Self::Runtime(address) => write!(formatter, "run-time address {address}"),
        }
    }
}

/// A symbol's bytes; cheap to clone, because large profiles repeat the same names in many traces.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Deref for Name {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Name {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Self {
        Self(text.as_bytes().into())
    }
}

impl From<Vec<u8>> for Name {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "\"{self}\"")
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&String::from_utf8_lossy(&self.0))
    }
}
