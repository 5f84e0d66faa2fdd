//! Events to functions of one image.
//!
//! Takes traces of any images and one image's functions; gives, for every trace of that image, its functions
//! without repetitions in order of first execution, and an account of what was not found. Addresses are believed only
//! where the identity of the images allows it and a function of the stated size starts there; otherwise names
//! decide, and only if they are unambiguous.

mod coverage;
mod executed;
mod kinship;
mod outside;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use super::matching::{
    DigestIndex, Found, HashIndex, LikelyNames, LoadAddress, NameIndex, PageOffsets, Spelling, Step,
    root_name,
};
use super::{Event, Evidence, ImageIdentity, Location, Name, RecordedBlocks, Trace};
use reorder_base::address::{Address, RuntimeAddress};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_image::code_digest::FunctionDigest;
use reorder_image::functions::{FunctionIndex, FunctionTable};

use coverage::Account;
pub use coverage::{Coverage, Missing};
pub use executed::{BlockAccount, ExecutedBlock, ExecutedBlocks, WholeReason, executed_blocks};
use kinship::{Kinship, kinship};

/// One trace in terms of one image's functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedTrace {
    /// How many times it counts.
    pub weight: u64,
    /// For messages.
    pub label: String,
    /// The file it was read from.
    pub source: Option<PathBuf>,
    /// The program and its arguments, where the trace has them.
    pub command: Vec<Vec<u8>>,
    /// Whether it was recorded with another build of the image.
    pub is_of_other_build: bool,
    /// Each function once, in order of first execution.
    pub functions: Vec<FunctionIndex>,
    /// Time since the program's start, parallel to `functions`, never decreasing; where an event has no time, the
    /// time of the event before, at first zero. Empty where no event of the trace has a time.
    pub nanoseconds: Vec<u64>,
    /// The basic blocks that ran, parallel to `functions` and as the trace has them: whether they are blocks of this
    /// image is for [`executed_blocks`] to say. Empty where the trace has blocks of no function.
    pub blocks: Vec<Option<Arc<RecordedBlocks>>>,
}

/// All traces of one image that have at least one of its functions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolvedTraces {
    /// In the order given.
    pub traces: Vec<ResolvedTrace>,
    /// What the order of the loosest of them rests on.
    pub evidence: Evidence,
    /// How often each function ran, by profiles that know no order; empty when there are none.
    pub counts: Vec<u64>,
    /// What was found and what was not.
    pub coverage: Coverage,
}

/// How many functions of one start are compared: a symbol's and an unwind entry's size may differ, but a hostile table
/// of a million equal starts must not cost a million steps per event.
const MAX_FAMILY: usize = 8;

/// A trace of an unknown image of which fewer events are found, in percent, is of another image: some names, such as
/// `main`, are everywhere.
const MIN_FOUND_PERCENT: u64 = 10;

/// Start and end of each function in `trace` that has an address and a size; none unless the trace is of exactly the image called
/// `identity`, by its build-id, or by its path if neither has one.
pub fn entered_functions(trace: &Trace, identity: &ImageIdentity) -> Vec<(Address, Address)> {
    let is_same = match (&trace.image.build_id, &identity.build_id) {
        (None, None) => trace.image.path.is_some() && trace.image.path == identity.path,
        (recorded, given) => recorded == given,
    };
    let range = |event: &Event| match (&event.location, event.size) {
        (Location::Image(start), Some(size)) => Some((*start, Address(start.0.checked_add(size)?))),
        _ => None,
    };
    trace.events.iter().filter(|_| is_same).filter_map(range).collect()
}

/// Functions of the image called `identity` for every trace that belongs to it.
///
/// # Errors
/// Traces of another build that have addresses only, and traces without a known function, both with the command
/// that helps.
pub fn resolve(
    traces: &[Trace],
    functions: &FunctionTable<'_>,
    identity: &ImageIdentity,
) -> Result<ResolvedTraces> {
    let resolver = Resolver::new(functions, identity);
    resolver.collect(traces.iter().map(|trace| resolver.resolve(trace)))
}

/// Finds the functions of one image; works on several traces at a time.
pub struct Resolver<'table, 'data> {
    functions: &'table FunctionTable<'data>,
    identity: &'table ImageIdentity,
    names: NameIndex<'data>,
    /// Hashing all names is worth it only for formats that need it.
    hashes: OnceLock<HashIndex>,
    /// So is sorting all functions by their place in a page.
    page_offsets: OnceLock<PageOffsets>,
    /// So is reading the code of all functions.
    digests: OnceLock<DigestIndex>,
}

/// What one trace gave.
pub struct Resolution {
    weight: u64,
    label: String,
    source: Option<PathBuf>,
    command: Vec<Vec<u8>>,
    is_of_other_build: bool,
    evidence: Evidence,
    /// Whether any event has a time; all times are 0 otherwise.
    has_times: bool,
    /// Each function once, with its time and count.
    functions: Vec<(FunctionIndex, u64, u64)>,
    /// Parallel to these.
    blocks: Vec<Option<Arc<RecordedBlocks>>>,
    account: Account,
}

impl Resolution {
    /// The functions as events of the image: address, size, name, and the time and count that the trace had.
    pub fn events(&self, functions: &FunctionTable<'_>) -> Vec<Event> {
        let event = |(&(index, nanoseconds, count), blocks): (&(FunctionIndex, u64, u64), &Option<_>)| {
            let function = functions.get(index);
            Event {
                location: Location::Image(function.start),
                name: functions.names_at(function.start).next().map(Name::from),
                size: Some(function.size()),
                nanoseconds: (nanoseconds > 0).then_some(nanoseconds),
                count: (count > 1 || !self.evidence.is_ordered()).then_some(count),
                tick: None,
                blocks: blocks.clone(),
                digest: None,
            }
        };
        self.functions.iter().zip(&self.blocks).map(event).collect()
    }
}

impl<'table, 'data> Resolver<'table, 'data> {
    /// For the image called `identity`.
    pub fn new(functions: &'table FunctionTable<'data>, identity: &'table ImageIdentity) -> Self {
        Self {
            functions,
            identity,
            names: NameIndex::new(functions),
            hashes: OnceLock::new(),
            page_offsets: OnceLock::new(),
            digests: OnceLock::new(),
        }
    }

    /// The functions of one trace.
    ///
    /// # Errors
    /// Traces of another build that have addresses only.
    pub fn resolve(&self, trace: &Trace) -> Result<Resolution> {
        let mut resolution = Resolution {
            weight: trace.whole_weight(),
            label: trace.label(),
            source: trace.source.clone(),
            command: trace.command.clone(),
            is_of_other_build: false,
            evidence: trace.evidence,
            has_times: trace.events.iter().any(|event| event.nanoseconds.is_some()),
            functions: Vec::new(),
            blocks: Vec::new(),
            account: Account::default(),
        };
        let kinship = kinship(trace, self.functions, self.identity);
        resolution.is_of_other_build = kinship == Kinship::OtherBuild;
        let has_names = || trace.events.iter().any(needs_no_address);
        match kinship {
            Kinship::OtherImage => {
                resolution.account.coverage.other_images.insert(trace.image.to_string(), 1);
                return Ok(resolution);
            }
            Kinship::OtherBuild if !trace.events.is_empty() && !has_names() => {
                return Err(Error::usage(format!(
                    "{} was recorded with another build of {} and has no names to go by",
                    trace.label(),
                    self.identity
                ))
                .with_hint(self.record_again(false)));
            }
            _ => self.find_events(trace, kinship, &mut resolution),
        }
        let coverage = &resolution.account.coverage;
        let is_other = coverage.resolved() * 100 < coverage.events * MIN_FOUND_PERCENT;
        if kinship == Kinship::Unknown && is_other {
            resolution.functions.clear();
            resolution.blocks.clear();
            resolution.account = Account::default();
            resolution.account.coverage.other_images.insert(trace.image.to_string(), 1);
        }
        Ok(resolution)
    }

    /// All traces together.
    ///
    /// # Errors
    /// The first failure, and traces without any known function.
    pub fn collect(&self, resolutions: impl Iterator<Item = Result<Resolution>>) -> Result<ResolvedTraces> {
        let mut account = Account::default();
        let mut resolved = ResolvedTraces::default();
        for resolution in resolutions {
            let Resolution {
                weight,
                label,
                source,
                command,
                is_of_other_build,
                evidence,
                has_times,
                functions,
                blocks,
                account: of_trace,
            } = resolution?;
            account.absorb(of_trace);
            if functions.is_empty() {
                continue;
            }
            resolved.evidence = resolved.evidence.max(evidence);
            if evidence.is_ordered() {
                resolved.traces.push(ResolvedTrace {
                    weight,
                    label,
                    source,
                    command,
                    is_of_other_build,
                    nanoseconds: functions.iter().filter(|_| has_times).map(|(_, time, _)| *time).collect(),
                    functions: functions.into_iter().map(|(function, ..)| function).collect(),
                    blocks: if blocks.iter().any(Option::is_some) { blocks } else { Vec::new() },
                });
                continue;
            }
            resolved.counts.resize(self.functions.len(), 0);
            for (function, _, count) in functions {
                let sum = &mut resolved.counts[function.0 as usize];
                *sum = sum.saturating_add(count.saturating_mul(weight));
            }
        }
        if resolved.traces.is_empty() && resolved.counts.is_empty() {
            return Err(self.nothing_found(&account));
        }
        resolved.coverage = account.finish(|| {
            let mut is_found: Vec<bool> = resolved.counts.iter().map(|count| *count > 0).collect();
            is_found.resize(self.functions.len(), false);
            for function in resolved.traces.iter().flat_map(|trace| &trace.functions) {
                is_found[function.0 as usize] = true;
            }
            LikelyNames::new(self.functions, &self.names, &is_found)
        });
        Ok(resolved)
    }

    fn nothing_found(&self, account: &Account) -> Error {
        let others: u64 = account.coverage.other_images.values().sum();
        let what = match (account.coverage.events, others) {
            (0, 0) => "the traces are empty".to_owned(),
            (0, _) => {
                let images: Vec<_> =
                    account.coverage.other_images.keys().take(3).map(String::as_str).collect();
                format!(
                    "all {others} traces are of other images than {}: {}",
                    self.identity,
                    images.join(", ")
                )
            }
            (events, _) => format!("none of {events} events is a function of {}", self.identity),
        };
        let may_use_names = others > 0 && account.coverage.events == 0;
        Error::usage(what).with_hint(self.record_again(may_use_names))
    }

    /// `may_use_names`: the traces may be of this program at another place.
    fn record_again(&self, may_use_names: bool) -> Hint {
        Hint::RecordAgain { program: self.identity.to_string(), may_use_names }
    }

    fn find_events(&self, trace: &Trace, kinship: Kinship, resolution: &mut Resolution) {
        let mut seen = vec![false; self.functions.len()];
        let mut now = 0;
        let load_address = self.load_address(trace);
        let spelling = Spelling::of(trace.events.iter().filter_map(Event::symbol));
        let account = &mut resolution.account;
        resolution.functions.reserve(trace.events.len().min(self.functions.len()));
        for event in &trace.events {
            now = event.nanoseconds.unwrap_or(now).max(now);
            account.coverage.events += 1;
            let by_address = match kinship {
                Kinship::SameBuild => by_address(event, self.functions),
                Kinship::Unverified => by_address(event, self.functions).filter(|&function| {
                    name_agrees(event, self.functions.get(function).start, self.functions)
                }),
                _ => None,
            };
            let found = match by_address {
                Some(function) => Found::Function(function, Step::Address),
                None => match self.find_event(event, spelling, load_address) {
                    Found::Function(function, step) => Found::Function(function, step),
                    found => event.digest.map_or(found, |digest| self.find_digest(digest)),
                },
            };
            match found {
                Found::Function(function, step) => {
                    account.found(step);
                    if !std::mem::replace(&mut seen[function.0 as usize], true) {
                        resolution.functions.push((function, now, event.count.unwrap_or(1)));
                        resolution.blocks.push(event.blocks.clone());
                    }
                    continue;
                }
                Found::Ambiguous => account.coverage.ambiguous += 1,
                Found::Nowhere => account.coverage.unknown += 1,
            }
            *account.missing.entry(describe(event)).or_default() += 1;
        }
    }

    fn find_event(&self, event: &Event, spelling: Spelling, load_address: Option<LoadAddress>) -> Found {
        if let Some(name) = event.symbol() {
            return match (self.names.find(name, spelling), event.size) {
                (Found::Ambiguous, Some(size)) => self.names.find_sized(name, size, self.functions),
                (found, _) => found,
            };
        }
        match event.location {
            Location::NameHash(hash) => {
                self.hashes.get_or_init(|| HashIndex::new(self.functions, &self.names)).find(hash)
            }
            Location::Runtime(address) => load_address
                .and_then(|load_address| self.functions.containing(load_address.stated(address)))
                .map_or(Found::Nowhere, |function| Found::Function(function, Step::LoadAddress)),
            _ => Found::Nowhere,
        }
    }

    fn find_digest(&self, digest: FunctionDigest) -> Found {
        self.digests.get_or_init(|| DigestIndex::new(self.functions)).find(digest)
    }

    fn load_address(&self, trace: &Trace) -> Option<LoadAddress> {
        let addresses: Vec<RuntimeAddress> = trace
            .events
            .iter()
            .filter_map(|event| match event.location {
                Location::Runtime(address) if event.name.is_none() => Some(address),
                _ => None,
            })
            .collect();
        if addresses.is_empty() {
            return None;
        }
        let offsets = self.page_offsets.get_or_init(|| PageOffsets::of(self.functions));
        LoadAddress::deduce(&addresses, offsets, self.functions)
    }
}

/// Whether the event can be found in another build.
fn needs_no_address(event: &Event) -> bool {
    event.digest.is_some()
        || event.symbol().is_some()
        || matches!(event.location, Location::NameHash(_) | Location::Runtime(_))
}

/// The function at the event's image address: one that starts there and, if the event states a size, has that size,
/// or the one around an address inside.
fn by_address(event: &Event, functions: &FunctionTable<'_>) -> Option<FunctionIndex> {
    match event.location {
        Location::Image(address) => starting_at(event, address, functions),
        Location::Inside(address) => functions.containing(address),
        _ => None,
    }
}

fn starting_at(event: &Event, address: Address, functions: &FunctionTable<'_>) -> Option<FunctionIndex> {
    let first = functions.starting_at(address)?;
    let candidates = first.0..functions.len().min(first.0 as usize + MAX_FAMILY) as u32;
    let agrees = |index: u32| {
        let function = functions.get(FunctionIndex(index));
        function.start == address && event.size.is_none_or(|size| function.size() == size)
    };
    candidates.into_iter().any(agrees).then_some(first)
}

/// Whether the image calls the function at `start` what the event calls it; without a name on either side it
/// counts as agreement. Names that do not agree show that the address is of another build.
fn name_agrees(event: &Event, start: Address, functions: &FunctionTable<'_>) -> bool {
    let Some(name) = &event.name else { return true };
    let mut known = functions.names_at(start).peekable();
    known.peek().is_none() || known.any(|known| root_name(known) == root_name(name))
}

fn describe(event: &Event) -> String {
    match event.symbol() {
        Some(name) => String::from_utf8_lossy(name).into_owned(),
        None => event.location.to_string(),
    }
}
