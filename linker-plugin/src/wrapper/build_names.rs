//! Names of the functions of stripped builds, by build-id. Recordings of these builds have addresses only, while the link
//! that made them knew every name.
//!
//! In: the functions of a trial, and where each went in the output. Out: an entry of the cache, from which [`BuildNames::give`]
//! names the events of a trace. What one link learns serves later ones only, so neither the order of traces nor threads matter.
//! A build-id that does not depend on the contents of the output identifies no build, so nothing is kept for it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reorder_base::address::Address;
use reorder_image::code_digest::FunctionDigests;
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_system::mapped::map_image;
use reorder_trace::{Event, Location, Name, Trace};
use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::contents::{Digest, digest_of_parts};
use super::invocation::Invocation;

/// Address, size, name.
type NamedFunction = (u64, u64, String);

/// The functions of one build that have a name, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedFunctions {
    functions: Vec<NamedFunction>,
}

impl NamedFunctions {
    /// Those of a linked image.
    #[must_use]
    pub(crate) fn of(table: &FunctionTable<'_>) -> Self {
        let functions = table.iter().filter_map(|(index, _)| Self::one(table, index)).collect();
        Self { functions }
    }

    fn one(table: &FunctionTable<'_>, index: FunctionIndex) -> Option<NamedFunction> {
        let function = table.get(index);
        let name = std::str::from_utf8(table.names_at(function.start).next()?).ok()?;
        Some((function.start.0, function.size(), name.to_owned()))
    }

    /// The same functions at their places in another link of the same objects.
    #[must_use]
    pub(crate) fn moved(&self, place: impl Fn(Address) -> Option<Address>) -> Self {
        let moved =
            |(start, size, name): &NamedFunction| Some((place(Address(*start))?.0, *size, name.clone()));
        let mut functions: Vec<NamedFunction> = self.functions.iter().filter_map(moved).collect();
        functions.sort_unstable();
        Self { functions }
    }

    fn name_of(&self, event: &Event) -> Option<Name> {
        let Location::Image(address) = event.location else { return None };
        let index = self.functions.binary_search_by_key(&address.0, |(start, ..)| *start).ok()?;
        let (_, size, name) = &self.functions[index];
        (event.size == Some(*size)).then(|| Name::from(name.as_str()))
    }
}

/// The names of earlier builds, each read once.
#[derive(Debug)]
pub(crate) struct BuildNames<'call> {
    cache: Option<&'call Cache>,
    /// By build-id; `None` for builds that are not known.
    read: Mutex<BTreeMap<Vec<u8>, Option<Arc<NamedFunctions>>>>,
    /// By build-id, with address, size and name.
    learned: Mutex<BTreeMap<Vec<u8>, BTreeSet<NamedFunction>>>,
}

impl<'call> BuildNames<'call> {
    /// Those that `cache` has.
    #[must_use]
    pub(crate) fn new(cache: Option<&'call Cache>) -> Self {
        Self { cache, read: Mutex::default(), learned: Mutex::default() }
    }

    /// Keeps the names of the output of `invocation`, which is now at `output`, if it has none itself.
    pub(crate) fn keep_output(&self, invocation: &Invocation, output: &Path, names: &NamedFunctions) {
        let is_fixed = |word: &OsString| {
            let word = word.as_encoded_bytes();
            word.starts_with(b"--build-id=0x") || word.starts_with(b"-build-id=0x")
        };
        let is_stripped = invocation.has(&["-s", "--strip-all", "-strip-all"]);
        if self.cache.is_none() || !is_stripped || invocation.expanded.iter().any(is_fixed) {
            return;
        }
        let Ok(bytes) = map_image(output) else { return };
        if let Some(build_id) = ElfFile::parse_any_processor(&bytes).ok().and_then(|file| file.build_id()) {
            self.keep(build_id, names);
        }
    }

    /// Learns the names of what `trace` ran in the build that it was recorded with, if `table` has functions of the same sizes
    /// and the same code at the same places. Of the others that build may have had something else.
    pub(crate) fn learn(&self, trace: &Trace, table: &FunctionTable<'_>) {
        let Some(build_id) = &trace.image.build_id else { return };
        if self.cache.is_none() || !trace.events.iter().any(is_nameless) {
            return;
        }
        let at_place = |event: &Event| match event.location {
            Location::Image(address) => table.starting_at(address),
            _ => None,
        };
        let Some(ran) = trace.events.iter().map(at_place).collect::<Option<BTreeSet<_>>>() else { return };
        let digests = FunctionDigests::of(table, ran.iter().copied());
        let is_same = |event: &Event| {
            at_place(event).is_some_and(|index| {
                event.size == Some(table.get(index).size())
                    && event.digest.is_some()
                    && event.digest == digests.get(index)
            })
        };
        if trace.events.iter().all(is_same) {
            let names = ran.into_iter().filter_map(|index| NamedFunctions::one(table, index));
            lock(&self.learned).entry(build_id.clone()).or_default().extend(names);
        }
    }

    /// Keeps what was learned.
    pub(crate) fn keep_learned(&self) {
        for (build_id, mut functions) in std::mem::take(&mut *lock(&self.learned)) {
            let known = self.find(&build_id).unwrap_or_default();
            let is_new = functions.iter().any(|one| known.functions.binary_search(one).is_err());
            if is_new {
                functions.extend(known.functions.iter().cloned());
                self.keep(&build_id, &NamedFunctions { functions: functions.into_iter().collect() });
            }
        }
    }

    /// Names the events of `trace` that have none, if the names of its build are known.
    pub(crate) fn give(&self, trace: &mut Trace) {
        let Some(build_id) = &trace.image.build_id else { return };
        if !trace.events.iter().any(is_nameless) {
            return;
        }
        let Some(names) = self.find(build_id) else { return };
        for event in trace.events.iter_mut().filter(|event| is_nameless(event)) {
            event.name = names.name_of(event);
        }
    }

    fn keep(&self, build_id: &[u8], names: &NamedFunctions) {
        if let Some(cache) = self.cache {
            cache.put(&key(build_id), names);
        }
    }

    fn find(&self, build_id: &[u8]) -> Option<Arc<NamedFunctions>> {
        let cache = self.cache?;
        let mut read = lock(&self.read);
        if let Some(known) = read.get(build_id) {
            return known.clone();
        }
        let names = cache.get(&key(build_id)).map(Arc::new);
        read.insert(build_id.to_vec(), names.clone());
        names
    }
}

fn lock<Value>(value: &Mutex<Value>) -> MutexGuard<'_, Value> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_nameless(event: &Event) -> bool {
    event.name.is_none()
}

fn key(build_id: &[u8]) -> Digest {
    digest_of_parts("names of a build", std::iter::once(build_id))
}
