//! Damage to real files, for the readers' own tests.

use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

use crate::error::Result;
use crate::trace::{Companions, Input, Reading};

/// Changes, cuts and doubles bytes of `seed` and reads the outcome: it is traces that the file has room for, or an
/// error inside the file. `largest_ratio` is how many events a byte can hold.
pub(in crate::trace) fn survives_damage(
    read: fn(&Input<'_>) -> Result<Reading>,
    seed: &[u8],
    largest_ratio: usize,
) {
    let edits = proptest::collection::vec((any::<Index>(), interesting_byte()), 0..6);
    let mut runner = TestRunner::new(Config { cases: 400, ..Config::default() });
    let outcome = runner.run(&(edits, any::<Index>(), 0..4u8), |(edits, place, kind)| {
        let mut bytes = seed.to_vec();
        for (index, byte) in edits {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let at = place.index(bytes.len());
        match kind {
            0 => bytes.truncate(at),
            1 => drop(bytes.splice(at..at, seed[at / 2..at].iter().copied())),
            _ => {}
        }
        let companions = Companions::default();
        let input = Input { bytes: &bytes, path: Path::new("damaged"), companions: &companions };
        match read(&input) {
            Ok(reading) => {
                let events: usize = reading.traces.iter().map(|trace| trace.events.len()).sum();
                prop_assert!(events <= bytes.len().saturating_mul(largest_ratio));
                let notes_lie_inside = reading
                    .notes
                    .iter()
                    .all(|note| note.offset.is_none_or(|offset| offset <= bytes.len() as u64));
                prop_assert!(notes_lie_inside, "{:?}", reading.notes);
            }
            Err(error) => {
                prop_assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64), "{error}");
            }
        }
        Ok(())
    });
    outcome.unwrap();
}

/// Bytes at which something ends or overflows more often than at others.
fn interesting_byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), Just(0xff), Just(0x7f), Just(0x80), Just(b' '), Just(b':'), any::<u8>()]
}
