//! Counts of functions, for systems that know how often but not when.

use std::collections::BTreeMap;

use crate::{Event, Evidence, Location, Note, Trace};
use reorder_base::hint::Hint;

/// How often functions ran, added up by place.
#[derive(Default)]
pub(super) struct Counts(BTreeMap<Location, u64>);

impl Counts {
    /// Counts `times` more executions at `location`.
    pub(super) fn add(&mut self, location: Location, times: u64) {
        let count = self.0.entry(location).or_default();
        *count = count.saturating_add(times);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// These counts, and where `better` has one, that one instead.
    pub(super) fn with(mut self, better: Self) -> Self {
        self.0.extend(better.0);
        self
    }

    /// The most frequent first; equally frequent ones by place.
    pub(super) fn into_trace(self) -> Trace {
        let mut places: Vec<(Location, u64)> = self.0.into_iter().collect();
        places.sort_by(|(_, first), (_, second)| second.cmp(first));
        let events =
            places.into_iter().map(|(location, count)| Event { count: Some(count), ..Event::at(location) });
        Trace { weight: 1, evidence: Evidence::Counts, events: events.collect(), ..Trace::default() }
    }
}

/// Says that `what` holds frequencies only, and how to get an order.
pub(super) fn no_order(what: &str) -> Note {
    Note::new(format!(
        "{what} holds no order of execution: functions are ordered by count, most frequent first"
    ))
    .with_hint(Hint::Record {
        what: "the order of a run",
        otherwise: Some(
            "build with clang -fprofile-generate -ftemporal-profile, rustc -Cprofile-generate=DIRECTORY \
             -Cllvm-args=-pgo-temporal-instrumentation, gcc -fprofile-generate",
        ),
    })
}
