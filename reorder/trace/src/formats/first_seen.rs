//! Events without their repetitions.

use std::collections::BTreeSet;

use crate::{Event, Location};

/// Collects events and keeps the first of those that stand for the same place.
#[derive(Default)]
pub(super) struct FirstSeen {
    places: BTreeSet<Location>,
    events: Vec<Event>,
}

impl FirstSeen {
    /// Keeps `event` unless its place came before; says whether it did.
    pub(super) fn add(&mut self, event: Event) -> bool {
        let is_new = self.places.insert(event.location.clone());
        if is_new {
            self.events.push(event);
        }
        is_new
    }

    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }
}
