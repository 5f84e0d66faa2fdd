//! Where the copies of fragments go, and their bytes.

use std::collections::BTreeSet;

use super::arranged::{Arranged, long_form, short_distance};
use super::assumed::Assumed;
use super::bodies::Body;
use super::fragments::{Fragment, jump_size};
use super::obstacle::Obstacle;
use super::placed_tables::{PlacedTable, Read, reads_of};
use super::places::Places;
use super::step::{Form, Guard, Reference, Step, Use};
use super::tables::Table;
use crate::code_reference::rewrite;
use crate::debug::copies::{CopiedCode, CopiedRun};
use crate::elf::aarch64 as encode;
use reorder_base::address::{Address, NewAddress};
use reorder_base::processor::Processor;
use reorder_image::code_reference::{CodeForm, CodeReference};
use reorder_image::decode::aarch64::PAGE;
use reorder_image::elf::analysis::blocks::alignment;
use reorder_image::elf::code::CodeSpace;

/// All copies, and the addresses that lead to them.
pub(super) struct Copies<'run> {
    /// The functions that fragments are of.
    pub bodies: &'run [Body],
    /// What is copied, in the order of the copies.
    pub fragments: &'run [Fragment],
    /// Where each copy is, and what it looks like.
    pub placed: Vec<Placed>,
    /// First address after the last copy, of code or of a table.
    pub end: NewAddress,
    /// Copied tables, by the address of the original.
    pub tables: Vec<PlacedTable<'run>>,
    /// Copied or not, the instructions that name copied tables of addresses; ascending.
    pub reads: Vec<Read>,
    /// Starts of functions of which all known addresses become those of the copy.
    pub followed: &'run BTreeSet<Address>,
    processor: Processor,
    places: Places,
}

/// One copy.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// First address.
    pub start: NewAddress,
    /// Its parts.
    pub arranged: Arranged,
}

impl Placed {
    /// First address after the copy.
    pub(super) fn end(&self) -> NewAddress {
        self.start.plus(u64::from(self.arranged.size()))
    }
}

/// Flags in the address of a function may rely on any alignment that its functions can have asked for, which is the one they
/// have, as far as the section's header permits. So a copy whose address is that of the function starts where the original
/// does modulo this.
fn modulus(start: Address, code: &CodeSpace<'_>) -> u64 {
    /// What compilers align functions to.
    const ALIGNMENT: u64 = 16;
    let stated = code.arena_of(start).map_or(ALIGNMENT, |arena| arena.alignment.clamp(ALIGNMENT, PAGE));
    alignment(start, stated).max(ALIGNMENT)
}

/// What the copy of the fragment at `start` starts modulo as its original does.
fn step(start: Address, followed: &BTreeSet<Address>, code: &CodeSpace<'_>) -> u64 {
    match (followed.contains(&start), code.processor) {
        (true, _) => modulus(start, code),
        (false, Processor::Aarch64) => 4,
        (false, _) => 1,
    }
}

/// What the copy of the fragment at `start` is aligned to, if that says all of where it may start.
pub(super) fn alignment_of(start: Address, followed: &BTreeSet<Address>, code: &CodeSpace<'_>) -> u32 {
    let step = step(start, followed, code);
    // Few functions begin elsewhere; their copies are not planned to the byte.
    if start.0.is_multiple_of(step) { u32::try_from(step).unwrap_or(1) } else { 1 }
}

impl<'run> Copies<'run> {
    /// Places the copies of `fragments` one after the other from `first` on. The copy of a table comes after the fragment that
    /// [`Places::home_of`] gives; if control runs on from there into the next copy, it comes after the last copy of that chain.
    /// `tables` ascend by address.
    ///
    /// # Errors
    /// The position of a body that cannot be copied, and why.
    pub(super) fn new(
        (bodies, fragments, tables): (&'run [Body], &'run [Fragment], &'run [Table]),
        followed: &'run BTreeSet<Address>,
        first: NewAddress,
        code: &CodeSpace<'_>,
    ) -> Result<Self, (usize, Obstacle, Address)> {
        let processor = code.processor;
        let places = Places::new(bodies, fragments);
        let mut homes: Vec<(usize, &Table)> =
            tables.iter().filter_map(|table| Some((places.home_of(table)?, table))).collect();
        homes.sort_by_key(|(home, _)| *home);
        let mut due = homes.into_iter().peekable();
        let mut end = first;
        let mut placed = Vec::with_capacity(fragments.len());
        let mut copied_tables = Vec::new();
        for (index, fragment) in fragments.iter().enumerate() {
            let range = fragment.original(bodies);
            let next = fragments.get(index + 1).map(|next| next.original(bodies).start);
            // Where copies may be moved apart, control does not fall from one into the next.
            let is_free = |next: &Address| processor != Processor::Aarch64 && !followed.contains(next);
            let falls_through = next.filter(is_free) == Some(range.end);
            let arranged = Arranged::new(fragment, bodies, processor, falls_through)
                .map_err(|(obstacle, place)| (fragment.body, obstacle, place))?;
            let modulus = step(range.start, followed, code);
            let mut start = end.plus(range.start.0.wrapping_sub(end.0) % modulus);
            // A page has this many places to start at; if none of them suits, the copy meets the erratum anywhere.
            let mut tries = PAGE / modulus;
            while processor == Processor::Aarch64
                && tries > 0
                && meets_erratum(fragment.of(bodies), &arranged, start)
            {
                start = start.plus(modulus);
                tries -= 1;
            }
            let continues = fragment.of(bodies).last().is_some_and(|(_, step)| step.continues);
            let runs_on = continues && !arranged.has_jump;
            let copy = Placed { start, arranged };
            end = copy.end();
            placed.push(copy);
            while let Some((_, table)) = due.next_if(|(home, _)| !runs_on && *home <= index) {
                // A trap before it shows readers of code where to stop.
                let start = NewAddress(end.plus(1).0.next_multiple_of(table.entry.size()));
                let table = PlacedTable { start, table };
                end = table.end();
                copied_tables.push(table);
            }
        }
        copied_tables.sort_by_key(|placed| placed.table.base);
        let reads = reads_of(&copied_tables);
        Ok(Self { bodies, fragments, placed, end, tables: copied_tables, reads, followed, processor, places })
    }

    /// Where each copied instruction is, for those who describe code.
    pub(super) fn described(&self) -> CopiedCode {
        let runs = self.fragments.iter().zip(&self.placed).map(|(fragment, placed)| {
            let steps = fragment.of(self.bodies);
            let first = steps.first().map_or(0, |(offset, _)| *offset);
            let originals = steps.iter().map(|(offset, _)| offset - first);
            let guards = steps.iter().filter_map(|(offset, step)| Some((offset - first, step.guard?.size())));
            CopiedRun {
                original: fragment.original(self.bodies),
                copy: placed.start..placed.end(),
                instructions: originals.zip(placed.arranged.offsets.iter().copied()).collect(),
                guards: guards.collect(),
            }
        });
        CopiedCode::new(runs.collect())
    }

    /// The copy of the instruction at `address`.
    pub(super) fn copy_of(&self, address: Address) -> Option<NewAddress> {
        let index = self.places.fragment_at(address)?;
        let fragment = &self.fragments[index];
        let distance = address.distance_from(self.bodies[fragment.body].range.start);
        let steps = fragment.of(self.bodies);
        let step = steps.binary_search_by_key(&distance, |(offset, _)| u64::from(*offset)).ok()?;
        let copy = &self.placed[index];
        Some(copy.start.plus(u64::from(copy.arranged.offsets[step])))
    }

    /// Bytes from `copy` to the end of the fragment around it.
    pub(super) fn rest_of_fragment(&self, copy: NewAddress) -> Option<u64> {
        let after = self.placed.partition_point(|placed| placed.start <= copy);
        let placed = self.placed[..after].last().filter(|placed| copy < placed.end())?;
        Some(placed.end().distance_from(copy))
    }

    /// Where a branch to `target` leads: to its copy if it has one, else to the original.
    pub(super) fn branch_target(&self, target: Address) -> NewAddress {
        self.copy_of(target).unwrap_or(NewAddress(target.0))
    }

    /// The address that an instruction that keeps `target` keeps in the output.
    pub(super) fn kept_address(&self, target: Address) -> NewAddress {
        if self.followed.contains(&target) { self.branch_target(target) } else { NewAddress(target.0) }
    }

    /// The bytes of the copy with this number; `code` is that of its body.
    ///
    /// # Errors
    /// An instruction that cannot reach its target from the copy.
    pub(super) fn bytes(&self, index: usize, code: &[u8]) -> Result<Vec<u8>, (Obstacle, Address)> {
        let (fragment, placed) = (&self.fragments[index], &self.placed[index]);
        let body = self.bodies[fragment.body].range.start;
        let mut copy = Vec::with_capacity(placed.arranged.size() as usize);
        let steps = fragment.of(self.bodies);
        for ((offset, step), place) in steps.iter().zip(placed.arranged.offsets.windows(2)) {
            let unreached = (Obstacle::ShortReach, body.plus(u64::from(*offset)));
            let original = &code[*offset as usize..*offset as usize + usize::from(step.length)];
            let first = place[0] + step.guard.map_or(0, Guard::size);
            if let Some(guard) = step.guard {
                let exit = NewAddress(body.plus(u64::from(*offset)).0);
                copy.extend(guard.bytes(placed.start.plus(u64::from(place[0])), exit).ok_or(unreached)?);
            }
            let is_long = place[1] - first != u32::from(step.length);
            let bytes = if is_long { long_form(original).ok_or(unreached)? } else { original.to_vec() };
            copy.extend_from_slice(&bytes);
            let Some(reference) = step.reference else { continue };
            let instruction = Instruction { offset: *offset, step, copy: first..place[1] };
            self.encode(&mut copy, placed, body, &instruction, &reference).ok_or(unreached)?;
        }
        let unreached = || (Obstacle::ShortReach, fragment.original(self.bodies).end);
        let after = placed.arranged.has_jump.then(|| fragment.original(self.bodies).end);
        for target in after.into_iter().chain(placed.arranged.islands.iter().copied()) {
            let place = placed.start.plus(copy.len() as u64);
            copy.extend(jump(self.processor, place, self.branch_target(target)).ok_or_else(unreached)?);
        }
        Ok(copy)
    }

    /// Writes the operands in `copy`, the bytes of the copy with this number, that were taken for addresses of functions.
    ///
    /// # Errors
    /// An instruction whose operand does not hold the address.
    pub(super) fn lead_operands(
        &self,
        index: usize,
        assumed: &Assumed,
        copy: &mut [u8],
    ) -> Result<(), (Obstacle, Address)> {
        let start = self.placed[index].start;
        for number in assumed.operands_in(&self.fragments[index].original(self.bodies)) {
            let Some(instruction) = self.copy_of(number.instruction) else { continue };
            let within = number.place.distance_from(number.instruction);
            let place = instruction.plus(within).distance_from(start) as usize;
            let width = usize::from(number.width);
            if let Some(field) = copy.get_mut(place..place + width) {
                let address = self.kept_address(number.value).0;
                // Four bytes are sign-extended.
                let has_room = width == 8 || i32::try_from(address).is_ok();
                let field = Some(field).filter(|_| has_room);
                let field = field.ok_or((Obstacle::ShortReach, number.instruction))?;
                field.copy_from_slice(&address.to_le_bytes()[..width]);
            }
        }
        Ok(())
    }

    /// Writes the address that `instruction`, whose bytes end `copy`, states.
    fn encode(
        &self,
        copy: &mut [u8],
        placed: &Placed,
        body: Address,
        instruction: &Instruction<'_>,
        reference: &Reference,
    ) -> Option<()> {
        let Reference { target, place, form, usage } = *reference;
        let new_target = match (usage, form) {
            (Use::Jump | Use::Call, _) => self.branch_target(target),
            // Only this form has the whole address in one field.
            (Use::Value, Form::Far(CodeForm::Relative32 { .. })) => {
                self.table_of_field(target, place).unwrap_or_else(|| self.kept_address(target))
            }
            (Use::Value, _) => NewAddress(target.0),
        };
        let end = placed.start.plus(u64::from(instruction.copy.end));
        match form {
            Form::Far(form) => {
                let distance = place.distance_from(body.plus(u64::from(instruction.offset)));
                let at = u64::from(instruction.copy.start) + distance;
                let reference = CodeReference { place, target, form };
                rewrite(copy, at as usize, &reference, placed.start.plus(at), new_target)
            }
            Form::Short if instruction.is_long() => {
                let distance = i32::try_from(new_target.distance_from(end) as i64).ok()?;
                *copy.last_chunk_mut()? = distance.to_le_bytes();
                Some(())
            }
            Form::Short => {
                *copy.last_mut()? = short_distance(end, new_target)?;
                Some(())
            }
            Form::Near(_) => {
                let island = placed.arranged.island_to(target);
                let to = island.map_or(new_target, |island| placed.start.plus(u64::from(island)));
                match self.processor {
                    Processor::Aarch64 => {
                        let word = u32::from_le_bytes(*copy.last_chunk()?);
                        let at = placed.start.plus(u64::from(instruction.copy.start));
                        *copy.last_chunk_mut()? = encode::conditional(word, at, to)?.to_le_bytes();
                    }
                    Processor::X86_64 | Processor::Other => *copy.last_mut()? = short_distance(end, to)?,
                }
                Some(())
            }
        }
    }
}

/// An instruction and its copy.
struct Instruction<'run> {
    /// Distance of the original from the start of its body.
    offset: u32,
    step: &'run Step,
    /// Distances of the copy, after any guard, from the start of its fragment's.
    copy: std::ops::Range<u32>,
}

impl Instruction<'_> {
    fn is_long(&self) -> bool {
        self.copy.end - self.copy.start != u32::from(self.step.length)
    }
}

fn jump(processor: Processor, place: NewAddress, target: NewAddress) -> Option<Vec<u8>> {
    if processor == Processor::Aarch64 {
        return Some(encode::branch(0x1400_0000, place, target)?.to_le_bytes().to_vec());
    }
    let distance = target.distance_from(place.plus(u64::from(jump_size(processor)))) as i64;
    let distance = i32::try_from(distance).ok()?;
    Some([&[0xe9], distance.to_le_bytes().as_slice()].concat())
}

/// Whether an `ADRP` of the copy at `start` would be one of the last two instructions of a page (erratum 843419).
fn meets_erratum(steps: &[(u32, Step)], arranged: &Arranged, start: NewAddress) -> bool {
    steps.iter().zip(&arranged.offsets).any(|((_, step), offset)| {
        let is_page = step.reference.is_some_and(|reference| reference.form == Form::Far(CodeForm::Page));
        is_page && start.plus(u64::from(*offset)).0 % PAGE >= PAGE - 8
    })
}
