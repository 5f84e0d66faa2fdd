//! An account of all events: what was found by which evidence, and what was not.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::matching::{LikelyNames, Step};

/// An account of all events of all traces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Events in traces of this image.
    pub events: u64,
    /// Events for which a function was found, by what decided.
    pub found: BTreeMap<Step, u64>,
    /// Events whose name or hash several functions have.
    pub ambiguous: u64,
    /// Events of which neither address, name nor hash is known.
    pub unknown: u64,
    /// What was not found, the most frequent first, then by name.
    pub missing: Vec<Missing>,
    /// Traces of other images, left out, by image.
    pub other_images: BTreeMap<String, u64>,
}

/// A function of the traces that the image does not have, or has several times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Its name, or its location where it has none.
    pub name: String,
    /// The number of its events.
    pub events: u64,
    /// What it may be called now: the name most like it that no event found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likely: Option<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        self.likely.as_ref().map_or(Ok(()), |likely| write!(formatter, " (now {likely}?)"))
    }
}

impl Coverage {
    /// Events for which a function was found.
    pub fn resolved(&self) -> u64 {
        self.found.values().sum()
    }

    /// Adds the account of further traces of the same image.
    pub fn absorb(&mut self, other: &Self) {
        self.events += other.events;
        self.ambiguous += other.ambiguous;
        self.unknown += other.unknown;
        for (step, events) in &other.found {
            *self.found.entry(*step).or_default() += events;
        }
        for (image, traces) in &other.other_images {
            *self.other_images.entry(image.clone()).or_default() += traces;
        }
        for missing in &other.missing {
            match self.missing.iter_mut().find(|known| known.name == missing.name) {
                Some(known) => known.events += missing.events,
                None => self.missing.push(missing.clone()),
            }
        }
        self.missing
            .sort_by(|one, other| other.events.cmp(&one.events).then_with(|| one.name.cmp(&other.name)));
    }

    /// Events for which `step` decided.
    pub fn found_by(&self, step: Step) -> u64 {
        self.found.get(&step).copied().unwrap_or(0)
    }
}

/// A coverage under construction.
#[derive(Debug, Default)]
pub(super) struct Account {
    pub(super) coverage: Coverage,
    pub(super) missing: BTreeMap<String, u64>,
}

/// The most missing functions that get a guess: each is compared with all functions that no event found.
const GUESSES: usize = 50;

impl Account {
    pub(super) fn found(&mut self, step: Step) {
        *self.coverage.found.entry(step).or_default() += 1;
    }

    /// Adds what another trace gave.
    pub(super) fn absorb(&mut self, other: Self) {
        let Coverage { events, found, ambiguous, unknown, missing: _, other_images } = other.coverage;
        self.coverage.events += events;
        self.coverage.ambiguous += ambiguous;
        self.coverage.unknown += unknown;
        for (step, count) in found {
            *self.coverage.found.entry(step).or_default() += count;
        }
        for (image, count) in other_images {
            *self.coverage.other_images.entry(image).or_default() += count;
        }
        for (name, count) in other.missing {
            *self.missing.entry(name).or_default() += count;
        }
    }

    /// The account with guesses; `likely` is asked for only when something is missing.
    pub(super) fn finish(mut self, likely: impl FnOnce() -> LikelyNames) -> Coverage {
        let mut missing: Vec<Missing> =
            self.missing.into_iter().map(|(name, events)| Missing { name, events, likely: None }).collect();
        missing.sort_by_key(|missing| std::cmp::Reverse(missing.events));
        if !missing.is_empty() {
            let likely = likely();
            missing.iter_mut().take(GUESSES).for_each(|missing| missing.likely = likely.of(&missing.name));
        }
        self.coverage.missing = missing;
        self.coverage
    }
}
