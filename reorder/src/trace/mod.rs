//! Traces: which functions of an image ran first, in which order.
//!
//! In: trace files of any known format. Out: [`Trace`] values, and after [`resolve`] functions of one image.
//! One trace is one run of one process in one image; events stand in the order of first execution and are never
//! merged across traces, because clocks and addresses of two processes have nothing in common.

mod detect;
mod list;
mod name_index;
mod read_files;
mod resolve;
mod statistics;
pub mod text;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::address::{Address, RuntimeAddress};
use crate::image::elf::file::ElfFile;

pub use name_index::root_name;
pub(crate) use name_index::{Found, NameIndex};
pub use read_files::{read_bytes, read_files};
pub use resolve::{Coverage, ResolvedTrace, ResolvedTraces, resolve};
pub use statistics::{ImageStatistics, SingleTraceStatistics, Touched, TraceStatistics, statistics};

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
    /// In order of first execution.
    pub events: Vec<Event>,
    /// The file it was read from.
    pub source: Option<PathBuf>,
}

impl Trace {
    /// Words that tell this trace from others: its file, or its image, run and process.
    pub fn label(&self) -> String {
        if let Some(source) = &self.source {
            return source.display().to_string();
        }
        let process = self.process.map_or_else(String::new, |process| format!(" process {process}"));
        format!("{} run {}{process}", self.image, self.run)
    }
}

/// What tells one image from another.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ImageIdentity {
    /// Absolute path, as far as it is known.
    pub path: Option<PathBuf>,
    /// GNU build-id.
    pub build_id: Option<Vec<u8>>,
}

impl ImageIdentity {
    /// The identity of an image read from `path`; the path is made absolute when the file still exists.
    pub fn of(path: &Path, file: &ElfFile<'_>) -> Self {
        Self {
            path: Some(path.canonicalize().unwrap_or_else(|_| path.to_path_buf())),
            build_id: file.build_id().map(<[u8]>::to_vec),
        }
    }
}

impl fmt::Display for ImageIdentity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(formatter, "{}", path.display()),
            None => formatter.write_str("unnamed image"),
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
    #[serde(serialize_with = "optional_text", skip_serializing_if = "Option::is_none")]
    pub name: Option<Vec<u8>>,
    /// The function's size in bytes: tells a stale address from a good one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Time since the program's start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nanoseconds: Option<u64>,
    /// How often the function ran, where the format counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

impl Event {
    /// An event that knows nothing but where it happened.
    pub fn at(location: Location) -> Self {
        Self { location, name: None, size: None, nanoseconds: None, count: None }
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
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Location {
    /// The symbol.
    Name(#[serde(serialize_with = "text")] Vec<u8>),
    /// A digest of the symbol; which one depends on the format.
    NameHash(u64),
    /// An address as stated in the image.
    #[serde(rename = "address")]
    Image(Address),
    /// An address in the process, for formats that carry no load address.
    #[serde(rename = "runtime_address")]
    Runtime(RuntimeAddress),
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(formatter, "{}", name.escape_ascii()),
            Self::NameHash(hash) => write!(formatter, "name hash {hash:#x}"),
            Self::Image(address) => write!(formatter, "{address}"),
            Self::Runtime(address) => write!(formatter, "run-time address {address}"),
        }
    }
}

fn text<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&String::from_utf8_lossy(bytes))
}

fn optional_text<S: Serializer>(bytes: &Option<Vec<u8>>, serializer: S) -> Result<S::Ok, S::Error> {
    match bytes {
        Some(bytes) => text(bytes, serializer),
        None => serializer.serialize_none(),
    }
}
