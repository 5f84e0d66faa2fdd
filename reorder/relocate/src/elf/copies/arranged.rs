//! The bytes of one fragment's copy: where each instruction is, which branches take their long form, and the jumps after them.

use super::bodies::Body;
use super::fragments::{Fragment, end_of, growth, jump_size};
use super::obstacle::Obstacle;
use super::step::{Form, Guard, Step, Use};
use reorder_base::address::{Address, NewAddress};
use reorder_base::processor::Processor;

/// Distances within the copy of a fragment.
#[derive(Clone, Debug)]
pub(super) struct Arranged {
    /// From the start of the copy to each instruction, then to what follows the last.
    pub offsets: Vec<u32>,
    /// A jump to what follows the original's last instruction comes first there.
    pub has_jump: bool,
    /// Then jumps to these places, for branches that do not reach so far.
    pub islands: Vec<Address>,
    jump: u32,
}

impl Arranged {
    /// `falls_through`: the copy of what follows the last instruction comes right after it.
    ///
    /// # Errors
    /// A branch that reaches neither its target nor the end of the copy.
    pub(super) fn new(
        fragment: &Fragment,
        bodies: &[Body],
        processor: Processor,
        falls_through: bool,
    ) -> Result<Self, (Obstacle, Address)> {
        let steps = fragment.of(bodies);
        let body = bodies[fragment.body].range.start;
        let inner = |target: Address| inner_target(steps, body, target);
        let mut is_long: Vec<bool> = steps
            .iter()
            .map(|(_, step)| short_target(step).is_some_and(|target| inner(target).is_none()))
            .collect();
        let mut offsets = offsets(steps, &is_long);
        // Ends: each round lengthens at least one of finitely many jumps.
        loop {
            let is_beyond = |position: &usize| {
                let Some(target) = short_target(&steps[*position].1).and_then(inner) else { return false };
                let distance = i64::from(offsets[target]) - i64::from(offsets[*position + 1]);
                !is_long[*position] && i8::try_from(distance).is_err()
            };
            let beyond: Vec<usize> = (0..steps.len()).filter(is_beyond).collect();
            if beyond.is_empty() {
                break;
            }
            beyond.into_iter().for_each(|position| is_long[position] = true);
            offsets = self::offsets(steps, &is_long);
        }
        let has_jump = !falls_through && steps.last().is_some_and(|(_, step)| step.continues);
        let mut arranged = Self { offsets, has_jump, islands: Vec::new(), jump: jump_size(processor) };
        for (position, (offset, step)) in steps.iter().enumerate() {
            let Some(reference) = step.reference else { continue };
            let Form::Near(reach) = reference.form else { continue };
            let place = match inner(reference.target) {
                Some(target) => arranged.offsets[target],
                None => arranged.island(reference.target),
            };
            let distance = i64::from(place) - i64::from(arranged.offsets[position + 1]);
            if distance.unsigned_abs() > u64::from(reach) {
                return Err((Obstacle::ShortReach, body.plus(u64::from(*offset))));
            }
        }
        // Control would fall into the islands.
        if falls_through && !arranged.islands.is_empty() {
            return Self::new(fragment, bodies, processor, false);
        }
        Ok(arranged)
    }

    /// Where the jump to `target` is, which is added if there is none.
    fn island(&mut self, target: Address) -> u32 {
        let known = self.islands.iter().position(|island| *island == target);
        let number = known.unwrap_or(self.islands.len());
        if known.is_none() {
            self.islands.push(target);
        }
        self.island_offset(number)
    }

    fn island_offset(&self, number: usize) -> u32 {
        let before = number as u32 + u32::from(self.has_jump);
        self.code_size() + before * self.jump
    }

    /// Where branches to `target` that do not reach so far lead.
    pub(super) fn island_to(&self, target: Address) -> Option<u32> {
        let number = self.islands.iter().position(|island| *island == target)?;
        Some(self.island_offset(number))
    }

    /// Bytes of the instructions.
    pub(super) fn code_size(&self) -> u32 {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// Bytes of the copy.
    pub(super) fn size(&self) -> u32 {
        self.island_offset(self.islands.len())
    }
}

/// The target of a short jump.
fn short_target(step: &Step) -> Option<Address> {
    let reference = step.reference.filter(|reference| reference.usage == Use::Jump)?;
    (reference.form == Form::Short).then_some(reference.target)
}

/// The position among `steps`, which belong to a body at `body`, of the instruction at `target`.
fn inner_target(steps: &[(u32, Step)], body: Address, target: Address) -> Option<usize> {
    let distance = target.0.checked_sub(body.0)?;
    steps.binary_search_by_key(&distance, |(offset, _)| u64::from(*offset)).ok()
}

fn offsets(steps: &[(u32, Step)], is_long: &[bool]) -> Vec<u32> {
    let mut offsets = Vec::with_capacity(steps.len() + 1);
    let mut at = 0;
    offsets.push(at);
    for (step, is_long) in steps.iter().zip(is_long) {
        let guard = step.1.guard.map_or(0, Guard::size);
        at += guard + end_of(step) - step.0 + if *is_long { growth(&step.1) } else { 0 };
        offsets.push(at);
    }
    offsets
}

/// The long form of a short jump: the same prefixes and condition, with four bytes of distance, which are zero.
/// Source: AMD64 Architecture Programmer's Manual, volume 3, `Jcc` and `JMP (near)`.
pub(super) fn long_form(short: &[u8]) -> Option<Vec<u8>> {
    let (prefixes, &[opcode, _]) = short.split_last_chunk()?;
    let opcode: &[u8] = match opcode {
        0x70..=0x7f => &[0x0f, opcode + 0x10],
        0xeb => &[0xe9],
        _ => return None,
    };
    Some([prefixes, opcode, &[0; 4]].concat())
}

/// The distance from the end of an instruction at `end` to `target`, if one byte holds it.
pub(super) fn short_distance(end: NewAddress, target: NewAddress) -> Option<u8> {
    i8::try_from(target.distance_from(end) as i64).ok().map(|distance| distance as u8)
}

#[cfg(test)]
mod tests {
    use super::super::bodies::Body;
    use super::super::fragments::Fragment;
    use super::super::step::{Form, Reference, Step, Use};
    use super::super::walk::Walk;
    use super::Arranged;
    use reorder_base::address::Address;
    use reorder_base::processor::Processor;
    use reorder_image::elf::analysis::blocks::BlockIndex;

    #[test]
    fn control_does_not_fall_into_islands() {
        let far = Reference {
            target: Address(0x2000),
            place: Address(0x1001),
            form: Form::Near(0x7f),
            usage: Use::Jump,
        };
        let branch = Step {
            length: 2,
            continues: true,
            is_call: false,
            is_skippable: false,
            is_trap: false,
            reference: Some(far),
            guard: None,
        };
        let other = Step { length: 1, reference: None, ..branch };
        let walk = Walk { steps: vec![(0, branch), (2, other)] };
        let range = Address(0x1000)..Address(0x1010);
        let bodies = [Body { block: BlockIndex(0), range, function_starts: Vec::new(), walk }];
        let fragment = |steps| Fragment { body: 0, steps };
        let arranged = |steps| Arranged::new(&fragment(steps), &bodies, Processor::X86_64, true).unwrap();
        let with_island = arranged(0..2);
        assert!(with_island.has_jump);
        assert_eq!(with_island.island_to(Address(0x2000)), Some(8));
        assert!(!arranged(1..2).has_jump);
    }
}
