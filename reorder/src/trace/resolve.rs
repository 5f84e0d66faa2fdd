//! Events to functions of one image.
//!
//! Takes traces of any images and one image's functions; gives, for every trace of that image, its functions
//! without repetitions in order of first execution, and an account of what was not found. Addresses are believed only
//! where the identity of the images allows it and a function of the stated size starts there; otherwise names
//! decide, and only if they are unambiguous.

use serde::Serialize;

use super::name_index::{Found, NameIndex};
use super::{Event, ImageIdentity, Location, Trace};
use crate::error::{Error, Result};
use crate::image::functions::{FunctionIndex, FunctionTable};

/// One trace in terms of one image's functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedTrace {
    /// How many times it counts.
    pub weight: u64,
    /// For messages.
    pub label: String,
    /// Each function once, in order of first execution.
    pub functions: Vec<FunctionIndex>,
    /// Time since the program's start, parallel to `functions`, never decreasing; where a trace has no time, the
    /// time of the event before, at first zero.
    pub nanoseconds: Vec<u64>,
}

/// All traces of one image that have at least one of its functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedTraces {
    /// In the order given.
    pub traces: Vec<ResolvedTrace>,
    /// What was found and what was not.
    pub coverage: Coverage,
}

/// An account of all events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Events in traces of this image.
    pub events: u64,
    /// Of these, found by address.
    pub by_address: u64,
    /// Found by exact name.
    pub by_name: u64,
    /// Found by the name without build-dependent suffixes.
    pub by_root_name: u64,
    /// Names that several functions have.
    pub ambiguous: u64,
    /// Neither address nor name is known.
    pub unknown: u64,
    /// The first few events that were not found.
    pub examples: Vec<String>,
    /// Traces of other images, left out.
    pub other_images: Vec<String>,
}

impl Coverage {
    /// Events for which a function was found.
    pub fn resolved(&self) -> u64 {
        self.by_address + self.by_name + self.by_root_name
    }
}

/// How many events that were not found are told.
const EXAMPLES: usize = 10;

/// How many functions of one start are compared: a symbol's and an unwind entry's size may differ, but a hostile table
/// of a million equal starts must not cost a million steps per event.
const LARGEST_FAMILY: usize = 8;

/// Functions of the image called `identity` for every trace that belongs to it.
///
/// # Errors
/// Traces of another build that have addresses only, and traces of which nothing is found, both with the command
/// that helps.
pub fn resolve(
    traces: &[Trace],
    functions: &FunctionTable<'_>,
    identity: &ImageIdentity,
) -> Result<ResolvedTraces> {
    let names = NameIndex::new(functions);
    let mut coverage = Coverage::default();
    let mut resolved = Vec::new();
    for trace in traces {
        let use_addresses = match kinship(trace, functions, identity) {
            Kinship::SameBuild => true,
            Kinship::OtherBuild if trace.events.iter().any(|event| event.symbol().is_some()) => false,
            Kinship::OtherBuild if trace.events.is_empty() => continue,
            Kinship::OtherBuild => {
                return Err(Error::usage(format!(
                    "{} was recorded with another build of {identity} and has no names to go by",
                    trace.label()
                ))
                .with_hint(record_again(identity)));
            }
            Kinship::OtherImage => {
                coverage.other_images.push(trace.label());
                continue;
            }
        };
        let trace = resolve_trace(trace, functions, &names, use_addresses, &mut coverage);
        if !trace.functions.is_empty() {
            resolved.push(trace);
        }
    }
    if resolved.is_empty() {
        let what = match (coverage.events, coverage.other_images.len()) {
            (0, 0) => "the traces are empty".to_owned(),
            (0, others) => format!("all {others} traces are of other images than {identity}"),
            (events, _) => format!("none of {events} events is a function of {identity}"),
        };
        return Err(Error::usage(what).with_hint(record_again(identity)));
    }
    Ok(ResolvedTraces { traces: resolved, coverage })
}

fn record_again(identity: &ImageIdentity) -> String {
    format!("record again: reorder record -o traces -- {identity} ARGUMENTS")
}

enum Kinship {
    SameBuild,
    OtherBuild,
    OtherImage,
}

fn kinship(trace: &Trace, functions: &FunctionTable<'_>, identity: &ImageIdentity) -> Kinship {
    let same_path = trace.image.path == identity.path;
    match (&trace.image.build_id, &identity.build_id) {
        // A list of no image is meant for whatever it is given with.
        (None, _) if trace.image.path.is_none() => Kinship::SameBuild,
        (Some(recorded), Some(given)) if recorded == given => Kinship::SameBuild,
        (None, None) if same_path => Kinship::SameBuild,
        // A copy without a build-id: only the addresses themselves can tell.
        (None, None) if trace.events.iter().all(|event| by_address(event, functions).is_some()) => {
            Kinship::SameBuild
        }
        _ if same_path => Kinship::OtherBuild,
        _ => Kinship::OtherImage,
    }
}

fn resolve_trace(
    trace: &Trace,
    functions: &FunctionTable<'_>,
    names: &NameIndex<'_>,
    use_addresses: bool,
    coverage: &mut Coverage,
) -> ResolvedTrace {
    let mut seen = vec![false; functions.len()];
    let mut now = 0;
    let mut result = ResolvedTrace {
        weight: trace.weight,
        label: trace.label(),
        functions: Vec::with_capacity(trace.events.len().min(functions.len())),
        nanoseconds: Vec::new(),
    };
    for event in &trace.events {
        now = event.nanoseconds.unwrap_or(now).max(now);
        coverage.events += 1;
        let address = use_addresses.then(|| by_address(event, functions)).flatten();
        let name = || event.symbol().map_or(Found::Nowhere, |name| names.find(name));
        let (function, counter) = match address {
            Some(function) => (Some(function), &mut coverage.by_address),
            None => match name() {
                Found::Exact(function) => (Some(function), &mut coverage.by_name),
                Found::ByRoot(function) => (Some(function), &mut coverage.by_root_name),
                Found::Ambiguous => (None, &mut coverage.ambiguous),
                Found::Nowhere => (None, &mut coverage.unknown),
            },
        };
        *counter += 1;
        match function {
            Some(function) if !seen[function.0 as usize] => {
                seen[function.0 as usize] = true;
                result.functions.push(function);
                result.nanoseconds.push(now);
            }
            Some(_) => {}
            None if coverage.examples.len() < EXAMPLES => coverage.examples.push(describe(event)),
            None => {}
        }
    }
    result
}

/// The function that starts at the event's image address and, if the event states a size, has that size.
fn by_address(event: &Event, functions: &FunctionTable<'_>) -> Option<FunctionIndex> {
    let Location::Image(address) = event.location else { return None };
    let first = functions.starting_at(address)?;
    let candidates = first.0..functions.len().min(first.0 as usize + LARGEST_FAMILY) as u32;
    let agrees = |index: u32| {
        let function = functions.get(FunctionIndex(index));
        function.start == address && event.size.is_none_or(|size| function.size() == size)
    };
    candidates.into_iter().any(agrees).then_some(first)
}

fn describe(event: &Event) -> String {
    match event.symbol() {
        Some(name) => String::from_utf8_lossy(name).into_owned(),
        None => event.location.to_string(),
    }
}
