//! Where copies go, and their bytes.

use std::collections::BTreeSet;

use super::bodies::Body;
use super::obstacle::Obstacle;
use super::step::{Reference, Use};
use crate::code_reference::rewrite;
use crate::elf::aarch64 as encode;
use reorder_base::address::{Address, NewAddress};
use reorder_base::processor::Processor;
use reorder_image::code_reference::{CodeForm, CodeReference};
use reorder_image::decode::aarch64::PAGE;
use reorder_image::elf::analysis::blocks::alignment;
use reorder_image::elf::code::CodeSpace;

/// All copies, and the addresses that lead to them.
pub(super) struct Copies<'run> {
    /// What is copied, in the order of the copies.
    pub bodies: &'run [Body],
    /// Where each copy starts.
    pub starts: Vec<NewAddress>,
    /// First address after the last copy.
    pub end: NewAddress,
    /// Starts of functions of which all known addresses become those of the copy.
    pub followed: &'run BTreeSet<Address>,
    processor: Processor,
    /// Positions of the bodies by their original address.
    by_original: Vec<(Address, usize)>,
}

/// What compilers align functions to; copies keep their original's distance from such a place.
const ALIGNMENT: u64 = 16;

/// A copy starts where its original does modulo this: flags in its address may rely on any alignment that its functions can
/// have asked for, which is the one they have, as far as the section's header permits. Copies have room enough for that.
fn modulus(body: &Body, code: &CodeSpace<'_>) -> u64 {
    let arena = code.arenas.iter().find(|arena| (arena.start..arena.end).contains(&body.range.start));
    let stated = arena.map_or(ALIGNMENT, |arena| arena.alignment.clamp(ALIGNMENT, PAGE));
    body.function_starts.iter().map(|start| alignment(*start, stated)).fold(ALIGNMENT, u64::max)
}
/// `jmp` with four bytes of displacement.
const JUMP: [u8; 5] = [0xe9, 0, 0, 0, 0];

impl<'run> Copies<'run> {
    /// Places the copies of `bodies` one after the other from `first` on.
    pub(super) fn new(
        bodies: &'run [Body],
        followed: &'run BTreeSet<Address>,
        first: NewAddress,
        code: &CodeSpace<'_>,
    ) -> Self {
        let processor = code.processor;
        let mut by_original: Vec<(Address, usize)> =
            bodies.iter().enumerate().map(|(index, body)| (body.range.start, index)).collect();
        by_original.sort_unstable();
        let mut end = first;
        let mut starts = Vec::with_capacity(bodies.len());
        for body in bodies {
            let modulus = modulus(body, code);
            let misalignment = body.range.start.0.wrapping_sub(end.0) % modulus;
            let mut start = end.plus(misalignment);
            // A page has this many places to start at; if none of them suits, the body meets the erratum anywhere.
            let mut tries = PAGE / modulus;
            while processor == Processor::Aarch64 && tries > 0 && meets_erratum(body, start) {
                start = start.plus(modulus);
                tries -= 1;
            }
            starts.push(start);
            end = start.plus(copy_size(body, processor));
        }
        Self { bodies, starts, end, followed, processor, by_original }
    }

    /// Each function that has a copy, with its place.
    pub(super) fn of_functions(&self) -> Vec<(Address, NewAddress)> {
        let placed = self.bodies.iter().zip(&self.starts);
        let functions = placed.flat_map(|(body, start)| {
            let place = |function: Address| start.plus(function.distance_from(body.range.start));
            body.function_starts.iter().map(move |function| (*function, place(*function)))
        });
        functions.collect()
    }

    /// Where a branch to `target` leads: into a copy that holds the instruction, else to the original.
    pub(super) fn branch_target(&self, target: Address) -> NewAddress {
        let after = self.by_original.partition_point(|(start, _)| *start <= target);
        let found = self.by_original[..after].last().filter(|(start, index)| {
            let body = &self.bodies[*index];
            body.range.contains(&target) && body.walk.holds(target.distance_from(*start))
        });
        found.map_or(NewAddress(target.0), |(start, index)| {
            self.starts[*index].plus(target.distance_from(*start))
        })
    }

    /// The address that an instruction that keeps `target` keeps in the output.
    pub(super) fn kept_address(&self, target: Address) -> NewAddress {
        if self.followed.contains(&target) { self.branch_target(target) } else { NewAddress(target.0) }
    }

    /// The bytes of the copy with this number; `code` is the original's. Bytes that control does not reach are filler, which
    /// stops the program.
    ///
    /// # Errors
    /// An instruction that cannot reach its target from the copy.
    pub(super) fn bytes(&self, index: usize, code: &[u8]) -> Result<Vec<u8>, (Obstacle, Address)> {
        let (body, start) = (&self.bodies[index], self.starts[index]);
        let mut copy = vec![filler(self.processor); copy_size(body, self.processor) as usize];
        for (offset, step) in &body.walk.steps {
            let (at, length) = (*offset as usize, usize::from(step.length));
            copy[at..at + length].copy_from_slice(&code[at..at + length]);
            let Some(reference) = step.reference else { continue };
            let is_inner = body.range.contains(&reference.target) && reference.usage != Use::Value;
            if !is_inner {
                self.encode(&mut copy, body, start, &reference)
                    .ok_or((Obstacle::ShortReach, body.range.start.plus(u64::from(*offset))))?;
            }
        }
        if body.walk.runs_past_end {
            let end = code.len();
            let back = self.branch_target(body.range.end);
            jump(self.processor, start.plus(end as u64), back)
                .map(|bytes| copy[end..].copy_from_slice(&bytes))
                .ok_or((Obstacle::ShortReach, body.range.end))?;
        }
        Ok(copy)
    }

    fn encode(&self, copy: &mut [u8], body: &Body, start: NewAddress, reference: &Reference) -> Option<()> {
        let Reference { target, place, form, usage } = *reference;
        let form = form?;
        let distance = place.distance_from(body.range.start);
        let new_target = match (usage, form) {
            (Use::Jump | Use::Call, _) => self.branch_target(target),
            // Only this form has the whole address in one field.
            (Use::Value, CodeForm::Relative32 { .. }) => self.kept_address(target),
            (Use::Value, _) => NewAddress(target.0),
        };
        let reference = CodeReference { place, target, form };
        rewrite(copy, distance as usize, &reference, start.plus(distance), new_target)
    }
}

/// Filler where control does not go.
pub(super) fn filler(processor: Processor) -> u8 {
    /// `int3`.
    const BREAKPOINT: u8 = 0xcc;
    /// Four of them are `UDF #0`.
    const UNDEFINED: u8 = 0;
    if processor == Processor::Aarch64 { UNDEFINED } else { BREAKPOINT }
}

/// Bytes of a copy: the original's, and a jump back where control may run past them.
fn copy_size(body: &Body, processor: Processor) -> u64 {
    let size = body.range.end.distance_from(body.range.start);
    match (body.walk.runs_past_end, processor) {
        (false, _) => size,
        (true, Processor::Aarch64) => size + 4,
        (true, _) => size + JUMP.len() as u64,
    }
}

fn jump(processor: Processor, place: NewAddress, target: NewAddress) -> Option<Vec<u8>> {
    if processor == Processor::Aarch64 {
        return Some(encode::branch(0x1400_0000, place, target)?.to_le_bytes().to_vec());
    }
    let mut bytes = JUMP;
    let distance = target.distance_from(place.plus(JUMP.len() as u64)) as i64;
    bytes[1..].copy_from_slice(&i32::try_from(distance).ok()?.to_le_bytes());
    Some(bytes.to_vec())
}

/// Whether an `ADRP` of the copy at `start` would be one of the last two instructions of a page (erratum 843419).
fn meets_erratum(body: &Body, start: NewAddress) -> bool {
    body.walk.steps.iter().any(|(offset, step)| {
        let is_page = step.reference.is_some_and(|reference| reference.form == Some(CodeForm::Page));
        is_page && start.plus(u64::from(*offset)).0 % PAGE >= PAGE - 8
    })
}
