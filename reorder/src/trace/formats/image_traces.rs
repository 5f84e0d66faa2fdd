//! Events sorted into one trace for each image of each process, each function at its first execution.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use crate::trace::{Event, ImageIdentity, Location, Trace};

/// Traces by a key that tells their images apart, in the order in which the images appear.
pub(super) struct ImageTraces<Key> {
    by_key: HashMap<Key, usize>,
    traces: Vec<Trace>,
    seen: HashSet<(usize, Location)>,
}

impl<Key: Hash + Eq> ImageTraces<Key> {
    pub(super) fn new() -> Self {
        Self { by_key: HashMap::new(), traces: Vec::new(), seen: HashSet::new() }
    }

    /// Adds an event behind those of its image, unless the image has one at the same place; `start` begins the
    /// trace of an image that was not seen before.
    pub(super) fn add(&mut self, key: Key, start: impl FnOnce() -> Trace, event: Event) {
        let index = *self.by_key.entry(key).or_insert_with(|| {
            self.traces.push(start());
            self.traces.len() - 1
        });
        if self.seen.insert((index, event.location.clone())) {
            self.traces[index].events.push(event);
        }
    }

    pub(super) fn finish(self) -> Vec<Trace> {
        self.traces
    }
}

/// The identity of an image of which only the path is known.
pub(super) fn image_at(path: &[u8]) -> ImageIdentity {
    use std::os::unix::ffi::OsStrExt as _;
    ImageIdentity { path: Some(std::ffi::OsStr::from_bytes(path).into()), build_id: None }
}

/// Words of a recorded command line, which are not quoted in any way.
pub(super) fn words(command: &[u8]) -> Vec<Vec<u8>> {
    command.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Whether `name` is how a person reads a symbol, not the symbol: with arguments, scopes or blanks.
pub(super) fn is_demangled(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'(' | b' ' | b':' | b'<'))
}
