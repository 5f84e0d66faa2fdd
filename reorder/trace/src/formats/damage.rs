//! Damaged copies of good files, for the readers' tests.

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::FORMATS;
use crate::{Companions, Input};

/// A profile of `tests/profiles`.
pub(super) fn sample(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/profiles").join(name);
    std::fs::read(path).unwrap()
}

/// `good`, cut somewhere, with some bytes replaced and some eight-byte numbers set to extremes.
pub(super) fn damaged(good: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let at = any::<prop::sample::Index>;
    let number = prop_oneof![Just(u64::MAX), Just(1 << 61), Just(0), any::<u64>(), 0u64..64];
    let bytes = proptest::collection::vec((at(), any::<u8>()), 0..4);
    let numbers = proptest::collection::vec((at(), number), 0..2);
    (bytes, numbers, proptest::option::of(at())).prop_map(move |(bytes, numbers, cut)| {
        let mut damaged = good.clone();
        for (at, number) in numbers {
            let at = at.index(damaged.len()) & !7;
            let length = (damaged.len() - at).min(8);
            damaged[at..at + length].copy_from_slice(&number.to_le_bytes()[..length]);
        }
        for (at, byte) in bytes {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        damaged.truncate(cut.map_or(damaged.len(), |cut| cut.index(good.len())));
        damaged
    })
}

/// Reads `bytes` as the format called `name` even where it would not accept them: the reader does not panic, errors and
/// notes lie inside the file, and there are not more events than bytes.
pub(super) fn check(name: &str, bytes: &[u8], path: &Path) -> Result<(), TestCaseError> {
    let format = FORMATS.iter().find(|format| format.name == name).unwrap();
    (format.accepts)(bytes);
    let companions = Companions::default();
    let length = bytes.len() as u64;
    match (format.read)(&Input { bytes, path, companions: &companions }) {
        Ok(reading) => {
            let events: usize = reading.traces.iter().map(|trace| trace.events.len()).sum();
            prop_assert!(events <= bytes.len());
            prop_assert!(reading.notes.iter().all(|note| note.offset.is_none_or(|offset| offset <= length)));
        }
        Err(error) => prop_assert!(error.offset.is_some_and(|offset| offset <= length), "{error}"),
    }
    Ok(())
}

/// Checks damaged copies of `good` as files of the format called `name`.
pub(super) fn survives(name: &str, good: &[u8]) {
    let mut runner = TestRunner::new(Config { cases: 300, ..Config::default() });
    let outcome = runner.run(&damaged(good.to_vec()), |bytes| check(name, &bytes, Path::new("damaged")));
    assert_eq!(outcome, Ok(()));
}
