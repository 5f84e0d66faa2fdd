//! Names of the functions of stripped builds, by build-id. Recordings of these builds have addresses only, while the link
//! that made them knew every name.
//!
//! In: the functions of a trial, and where each went in the output. Out: an entry of the cache, from which [`BuildNames::give`]
//! names the events of a trace. A build-id that does not depend on the contents of the output identifies no build, so nothing
//! is kept for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use reorder_base::address::Address;
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::FunctionTable;
use reorder_system::mapped::map_image;
use reorder_trace::{Event, Location, Name, Trace};
use serde::{Deserialize, Serialize};

use super::cache::Cache;
use super::contents::{Digest, digest_of_parts};
use super::invocation::Invocation;

/// The functions of one build that have a name, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NamedFunctions {
    /// Address, size, name.
    functions: Vec<(u64, u64, String)>,
}

impl NamedFunctions {
    /// Those of a linked image.
    #[must_use]
    pub(crate) fn of(table: &FunctionTable<'_>) -> Self {
        let named = |start: Address, size: u64| {
            let name = std::str::from_utf8(table.names_at(start).next()?).ok()?;
            Some((start.0, size, name.to_owned()))
        };
        Self { functions: table.iter().filter_map(|(_, one)| named(one.start, one.size())).collect() }
    }

    /// The same functions at their places in another link of the same objects.
    #[must_use]
    pub(crate) fn moved(&self, place: impl Fn(Address) -> Option<Address>) -> Self {
        let moved =
            |(start, size, name): &(u64, u64, String)| Some((place(Address(*start))?.0, *size, name.clone()));
        let mut functions: Vec<(u64, u64, String)> = self.functions.iter().filter_map(moved).collect();
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
    read: Mutex<BTreeMap<Vec<u8>, Option<Arc<NamedFunctions>>>>,
}

impl<'call> BuildNames<'call> {
    /// Those that `cache` has.
    #[must_use]
    pub(crate) fn new(cache: Option<&'call Cache>) -> Self {
        Self { cache, read: Mutex::default() }
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

    /// Keeps the names of the build that `trace` was recorded with, if `table` has functions of the same sizes at the same
    /// places.
    pub(crate) fn keep_recorded(&self, trace: &Trace, table: &FunctionTable<'_>) {
        let is_same = |event: &Event| match (&event.location, event.size) {
            (Location::Image(address), Some(size)) => {
                table.starting_at(*address).is_some_and(|index| table.get(index).size() == size)
            }
            _ => false,
        };
        let Some(build_id) = &trace.image.build_id else { return };
        if self.cache.is_some()
            && trace.events.iter().any(is_nameless)
            && trace.events.iter().all(is_same)
            && self.find(build_id).is_none()
        {
            self.keep(build_id, &NamedFunctions::of(table));
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
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = read.get(build_id) {
            return known.clone();
        }
        let names = cache.get(&key(build_id)).map(Arc::new);
        read.insert(build_id.to_vec(), names.clone());
        names
    }
}

fn is_nameless(event: &Event) -> bool {
    event.name.is_none()
}

fn key(build_id: &[u8]) -> Digest {
    digest_of_parts("names of a build", std::iter::once(build_id))
}
