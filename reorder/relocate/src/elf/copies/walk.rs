//! Which instructions of a function run when it is entered at known places and goes on by branches that name their target.
//!
//! Copies hold some of these. Where a copy jumps through a register or a table, control continues in the original, because
//! the address that it computes with is the original's. So no jump table has to be understood.

use std::ops::Range;

use super::obstacle::Obstacle;
use super::return_address::ReturnAddresses;
use super::step::{Step, Use};
use reorder_base::address::Address;

/// The reached instructions of one body.
#[derive(Clone, Debug, Default)]
pub(super) struct Walk {
    /// Distance from the body's start, and the instruction; ascending.
    pub steps: Vec<(u32, Step)>,
}

/// What each byte of a body is known to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Unreached,
    Start,
    Inside,
}

/// One body on its way to being walked.
pub(super) struct Walker<'run> {
    code: &'run [u8],
    range: Range<Address>,
    function_starts: &'run [Address],
    marks: Vec<Mark>,
    found: Walk,
}

impl<'run> Walker<'run> {
    /// Nothing of `code`, the bytes of `range`, is reached yet.
    pub(super) fn new(code: &'run [u8], range: Range<Address>, function_starts: &'run [Address]) -> Self {
        Self {
            code,
            range,
            function_starts,
            marks: vec![Mark::Unreached; code.len()],
            found: Walk::default(),
        }
    }

    /// Follows control from `entry`, a distance from the start; puts the targets of branches that leave the body into
    /// `leaving`.
    ///
    /// # Errors
    /// The first place that shows why the body cannot be copied.
    pub(super) fn enter(
        &mut self,
        entry: u32,
        decode: impl Fn(&[u8], Address) -> Option<Step>,
        return_addresses: &mut ReturnAddresses<'_>,
        leaving: &mut Vec<Address>,
    ) -> Result<(), (Obstacle, Address)> {
        let mut waiting = vec![entry];
        while let Some(mut offset) = waiting.pop() {
            loop {
                let position = offset as usize;
                let place = self.range.start.plus(u64::from(offset));
                match self.marks.get(position) {
                    None => {
                        leaving.push(self.range.end);
                        break;
                    }
                    Some(Mark::Start) => break,
                    Some(Mark::Inside) => return Err((Obstacle::Overlap, place)),
                    Some(Mark::Unreached) => {}
                }
                let step = self.code.get(position..).and_then(|rest| decode(rest, place));
                let step = step.ok_or((Obstacle::NotDecodable, place))?;
                let bytes = self.marks.get_mut(position..position + usize::from(step.length));
                let bytes = bytes.ok_or((Obstacle::NotDecodable, place))?;
                if bytes.iter().any(|mark| *mark != Mark::Unreached) {
                    return Err((Obstacle::Overlap, place));
                }
                bytes.fill(Mark::Inside);
                bytes[0] = Mark::Start;
                self.found.steps.push((offset, step));
                if let Some(reference) = step.reference {
                    let target = reference.target;
                    if reference.usage == Use::Call && return_addresses.are_read_at(target) {
                        return Err((Obstacle::ReturnAddressKnown, place));
                    }
                    match (self.range.contains(&target), reference.usage) {
                        (true, Use::Call) if self.function_starts.binary_search(&target).is_err() => {
                            return Err((Obstacle::TakesOwnPlace, place));
                        }
                        (true, Use::Call | Use::Jump) => {
                            waiting.push(target.distance_from(self.range.start) as u32);
                        }
                        (false, Use::Call | Use::Jump) => leaving.push(target),
                        (_, Use::Value) => {}
                    }
                }
                if !step.continues {
                    break;
                }
                offset += u32::from(step.length);
            }
        }
        Ok(())
    }

    /// What was reached. At a fixed address, any four or eight bytes of the body may be an address.
    ///
    /// # Errors
    /// A place that holds or forms the address after a call of the body, or a call that a return follows.
    pub(super) fn finish(self, is_fixed_address: bool) -> Result<Walk, (Obstacle, Address)> {
        let mut found = self.found;
        found.steps.sort_unstable_by_key(|(offset, _)| *offset);
        let calls = found.steps.iter().filter(|(_, step)| step.is_call);
        let after: Vec<u64> =
            calls.map(|(offset, step)| u64::from(*offset) + u64::from(step.length)).collect();
        let keeps_one = |step: &Step| {
            let kept = step.reference.filter(|reference| reference.usage == Use::Value);
            let kept = kept.filter(|reference| self.range.contains(&reference.target));
            kept.is_some_and(|kept| after.binary_search(&kept.target.distance_from(self.range.start)).is_ok())
        };
        let forming =
            found.steps.iter().find(|(_, step)| keeps_one(step)).map(|(offset, _)| u64::from(*offset));
        let is_one = |value: u64| {
            value.checked_sub(self.range.start.0).is_some_and(|offset| after.binary_search(&offset).is_ok())
        };
        let holds_one = |position: &usize| {
            let bytes = &self.code[*position..];
            let half = bytes.first_chunk().map(|word| u64::from(u32::from_le_bytes(*word)));
            let whole = bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
            half.is_some_and(is_one) || whole.is_some_and(is_one)
        };
        // `__morestack` continues after this return, where the copy has other code. Any callee may be `__morestack`.
        let skipping = found.steps.windows(2).find_map(|pair| match pair {
            [(offset, call), (next, end)] if call.is_call && end.is_skippable => {
                (offset + u32::from(call.length) == *next).then_some(u64::from(*offset))
            }
            _ => None,
        });
        let positions = is_fixed_address.then_some(0..self.code.len());
        let holding = || positions.and_then(|mut all| all.find(holds_one)).map(|offset| offset as u64);
        let at = |offset: u64| self.range.start.plus(offset);
        match (forming.or_else(holding), skipping) {
            (Some(offset), _) => Err((Obstacle::ReturnAddressKnown, at(offset))),
            (None, Some(offset)) => Err((Obstacle::CallBeforeReturn, at(offset))),
            (None, None) => Ok(found),
        }
    }
}
