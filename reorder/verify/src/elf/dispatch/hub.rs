//! Places where control comes together, with what holds on all ways that lead there.

use super::state::State;

/// Arrivals at a block before bounds that still change are given up.
pub(super) const MAX_CHANGES: u32 = 4;

/// A place where control comes together before it goes to many.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    pub(super) state: State,
    pub(super) changes: u32,
    pub(super) source: Source,
}

/// What control came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The instruction at a position, to the one after it.
    Before(usize),
    /// The branch at a position, to its target.
    Branch(usize),
    /// More than one, or places that come together elsewhere.
    Several,
}

impl Hub {
    /// Whether anything changed.
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
