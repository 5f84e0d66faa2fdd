//! Joins of control flow, with what holds on all ways that lead there.

use super::state::State;

/// Arrivals at a block after which bounds that still change are dropped.
pub(super) const MAX_CHANGES: u32 = 4;

/// A join from which control goes to several places.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    pub(super) state: State,
    pub(super) changes: u32,
    pub(super) source: Source,
}

/// Where control came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// From the instruction at a position to the next one.
    Before(usize),
    /// From the branch at a position to its target.
    Branch(usize),
    /// From more than one place, or from a hub.
    Several,
}

impl Hub {
    /// Joins `state` into the hub; gives whether anything changed.
    pub(super) fn join(hub: &mut Option<Self>, state: &State, position: usize) -> bool {
        match hub {
            None => {
                *hub = Some(Self { state: state.clone(), changes: 0, source: Source::Several });
                true
            }
            Some(hub) => {
                let has_changed = hub.state.join(state, position, hub.changes >= MAX_CHANGES);
                hub.changes += u32::from(has_changed);
                has_changed
            }
        }
    }
}
