//! Which instructions of a function run when it is entered at known places and goes on by branches that name their target.
//!
//! A copy holds these and nothing else. Where a copy jumps through a register or a table, it goes on in the original: the address
//! that it computes with is the original's. So no jump table has to be understood.

use std::collections::BTreeSet;
use std::ops::Range;

use super::obstacle::Obstacle;
use super::step::{Step, Use};
use crate::address::Address;

/// The reached instructions of one body.
#[derive(Clone, Debug, Default)]
pub(super) struct Walk {
    /// Distance from the body's start, and the instruction; ascending.
    pub steps: Vec<(u32, Step)>,
    /// Control may run past the body's last byte.
    pub runs_past_end: bool,
}

impl Walk {
    /// Whether a reached instruction starts so far from the body's start.
    pub(super) fn holds(&self, offset: u64) -> bool {
        self.steps.binary_search_by_key(&offset, |(start, _)| u64::from(*start)).is_ok()
    }
}

/// What each byte of a body is known to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Unreached,
    Start,
    Inside,
}

/// Follows control in `code`, the bytes of `range`, from `entries` (distances from its start).
///
/// # Errors
/// The first place that shows why the body cannot be copied.
pub(super) fn walk(
    code: &[u8],
    range: &Range<Address>,
    function_starts: &[Address],
    entries: &BTreeSet<u32>,
    decode: impl Fn(&[u8], Address) -> Option<Step>,
) -> Result<Walk, (Obstacle, Address)> {
    let mut marks = vec![Mark::Unreached; code.len()];
    let mut found = Walk::default();
    let mut waiting: Vec<u32> = entries.iter().rev().copied().collect();
    while let Some(mut offset) = waiting.pop() {
        loop {
            let position = offset as usize;
            let place = range.start.plus(u64::from(offset));
            match marks.get(position) {
                None => {
                    found.runs_past_end = true;
                    break;
                }
                Some(Mark::Start) => break,
                Some(Mark::Inside) => return Err((Obstacle::Overlap, place)),
                Some(Mark::Unreached) => {}
            }
            let step = code.get(position..).and_then(|rest| decode(rest, place));
            let step = step.ok_or((Obstacle::NotDecodable, place))?;
            let bytes = marks.get_mut(position..position + usize::from(step.length));
            let bytes = bytes.ok_or((Obstacle::NotDecodable, place))?;
            if bytes.iter().any(|mark| *mark != Mark::Unreached) {
                return Err((Obstacle::Overlap, place));
            }
            bytes.fill(Mark::Inside);
            bytes[0] = Mark::Start;
            found.steps.push((offset, step));
            if let Some(reference) = step.reference {
                let target = reference.target;
                match (range.contains(&target), reference.usage) {
                    (true, Use::Call) if function_starts.binary_search(&target).is_err() => {
                        return Err((Obstacle::TakesOwnPlace, place));
                    }
                    (true, Use::Call | Use::Jump) => waiting.push(target.distance_from(range.start) as u32),
                    _ if reference.form.is_none() => return Err((Obstacle::ShortReach, place)),
                    _ => {}
                }
            }
            if !step.continues {
                break;
            }
            offset += u32::from(step.length);
        }
    }
    found.steps.sort_unstable_by_key(|(offset, _)| *offset);
    Ok(found)
}
