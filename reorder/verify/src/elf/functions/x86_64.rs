//! One x86-64 function, old against new and back.
//!
//! Forward, the old function is decoded; all bytes but the address fields must recur in the new function, and each field
//! must stand for the mapped target. The bytes outside of address fields decide how an instruction decodes, so the new
//! instructions have the same lengths. In reverse, the *new* function is decoded independently, its targets are mapped back
//! and encoded for the old place, and the result must be the old bytes. This finds errors that the forward direction would
//! repeat.

use goblin::elf::header::ET_EXEC;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::signs::{Signs, keeps_operand, stated_addresses};
use super::{CodeOutcome, FunctionPair, FunctionShape, Naming};
use crate::aarch64::Images;
use crate::elf::absolute_fields::AbsoluteField;
use crate::elf::dispatch::Entry;
use crate::elf::pair::ImagePair;
use crate::fields::{AddressField, Addressing, addressing, read_field, write_field};
use crate::report::{Check, Difference};
use reorder_base::address::{Address, NewAddress};

impl FunctionPair<'_> {
    /// Checks the function in both directions; `scratch` is a buffer that is reused.
    pub(super) fn check_instructions(
        &self,
        outcome: &mut CodeOutcome,
        shape: &mut FunctionShape,
        scratch: &mut Vec<u8>,
    ) -> Result<(), Difference> {
        let signs = self.forward(outcome, shape)?;
        if shape.is_opaque {
            return Ok(());
        }
        shape.dispatches = signs.dispatches();
        shape.loads_targets = signs.loads_targets();
        self.reverse(scratch)
    }

    /// Old against new: same bytes outside of address fields, mapped targets inside.
    ///
    /// Gives the signs that the function may jump through a table.
    fn forward(&self, outcome: &mut CodeOutcome, shape: &mut FunctionShape) -> Result<Signs, Difference> {
        let mut signs = Signs::default();
        let mut last_call = None;
        let mut named = Vec::new();
        let mut decoder = Decoder::with_ip(64, self.old_bytes, self.range.old_start.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut compared_to = 0usize;
        while decoder.can_decode() {
            let start = decoder.position();
            decoder.decode_out(&mut instruction);
            let addressing = if instruction.is_invalid() {
                Addressing::Unsupported
            } else {
                addressing(&decoder, &instruction)
            };
            outcome.instructions += 1;
            if addressing != Addressing::Unsupported {
                self.check_operands(&decoder, &instruction, start)?;
            }
            if instruction.mnemonic() != Mnemonic::Nop {
                last_call = near_call(&instruction);
                shape.runs_on = falls_through(instruction.flow_control(), instruction.code());
            }
            signs.see(&instruction);
            match addressing {
                Addressing::None => {
                    signs.see_constant(&instruction, &self.images);
                    outcome.formed.extend(self.stated_function(&instruction));
                    named.extend(stated_addresses(self.images.old, &instruction));
                }
                Addressing::Field(field) => {
                    let at = start + field.offset;
                    self.same_bytes(compared_to, at)?;
                    self.check_field(&field, at, decoder.position())?;
                    if instruction.mnemonic() == Mnemonic::Lea
                        && let Some(difference) =
                            self.images.lost_alignment(Check::Functions, Address(field.target))
                    {
                        return Err(difference);
                    }
                    compared_to = at + field.width;
                    outcome.fields += 1;
                    if !field.is_branch {
                        named.extend(keeps_operand(&instruction).then_some(Address(field.target)));
                        // Its other operand may be a constant.
                        named.extend(stated_addresses(self.images.old, &instruction));
                    }
                    if !field.is_branch && self.is_outside(Address(field.target)) {
                        outcome.references.push(Address(field.target));
                    }
                    if field.is_branch && self.is_outside(Address(field.target)) {
                        self.leave(&instruction, Address(field.target), &mut signs, outcome);
                    }
                    if instruction.mnemonic() == Mnemonic::Lea && Images::is_text(&self.images, field.target)
                    {
                        signs.forms_code = true;
                        outcome.formed.push(Address(field.target));
                    }
                }
                Addressing::Unsupported => {
                    shape.is_opaque = true;
                    // Later instructions cannot be read.
                    outcome.naming.extend(Naming::new(named));
                    self.same_bytes(compared_to, self.old_bytes.len())?;
                    return if self.range.is_moved() {
                        let place = format!("{} in a function that moved", Address(instruction.ip()));
                        Err(self.difference(
                            Check::Functions,
                            start,
                            place,
                            "instructions that can be read",
                            "none",
                        ))
                    } else {
                        Ok(signs)
                    };
                }
            }
        }
        self.same_bytes(compared_to, self.old_bytes.len())?;
        outcome.naming.extend(Naming::new(named));
        let is_described = !self.images.moves.is_found(self.range.old_start);
        outcome.last_calls.extend(last_call.filter(|_| is_described));
        Ok(signs)
    }

    /// The address of a function that an instruction of a program at a fixed address states as a constant.
    fn stated_function(&self, instruction: &Instruction) -> Option<Address> {
        if self.images.old.header.e_type != ET_EXEC || instruction.mnemonic() != Mnemonic::Mov {
            return None;
        }
        self.function_at(Address(instruction.try_immediate(1).ok()?))
    }

    /// `address`, if a function starts there.
    fn function_at(&self, address: Address) -> Option<Address> {
        let home = self.images.moves.containing(address)?;
        (home.old_start == address).then_some(address)
    }

    /// Records a branch to a thunk, or into the middle of another function.
    fn leave(
        &self,
        instruction: &Instruction,
        target: Address,
        signs: &mut Signs,
        outcome: &mut CodeOutcome,
    ) {
        let is_call = instruction.flow_control() == FlowControl::Call;
        if self.thunks.register(target.0).is_some() {
            signs.jumps |= !is_call;
            signs.calls |= is_call;
        } else if !is_call
            && self.images.moves.containing(target).is_some_and(|home| home.old_start != target)
        {
            outcome.entries.push(Entry { target, source: self.index as u32 });
        }
    }

    /// New against old: fields encoded back for the old place must give the old bytes.
    fn reverse(&self, scratch: &mut Vec<u8>) -> Result<(), Difference> {
        scratch.clear();
        scratch.extend_from_slice(self.new_bytes);
        let mut decoder = Decoder::with_ip(64, self.new_bytes, self.range.new_start.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let start = decoder.position();
            decoder.decode_out(&mut instruction);
            let field = match addressing(&decoder, &instruction) {
                Addressing::Field(field) if !instruction.is_invalid() => field,
                Addressing::None if !instruction.is_invalid() => continue,
                _ => {
                    let place = NewAddress(instruction.ip()).to_string();
                    return Err(self.difference(
                        Check::Reverse,
                        start,
                        place,
                        "a readable instruction",
                        "none",
                    ));
                }
            };
            let at = start + field.offset;
            let old_next = self.range.old_start.plus(decoder.position() as u64);
            let target = self.images.moves.unmap(NewAddress(field.target));
            let distance = target.distance_from(old_next);
            let places = &mut scratch[at..at + field.width];
            let mut is_written = write_field(places, field.width, distance);
            // The address has two readings; the one that the old image used is right.
            let own_end =
                (field.is_branch && field.target == self.range.new_end().0).then(|| self.range.old_end());
            let is_original = is_written && places == &self.old_bytes[at..at + field.width];
            if !is_original
                && let Some(origin) = own_end.or_else(|| self.images.prefix_origin(NewAddress(field.target)))
            {
                is_written = write_field(places, field.width, origin.distance_from(old_next));
            }
            if !is_written {
                let place = format!("the field of {}", NewAddress(instruction.ip()));
                return Err(self.difference(
                    Check::Reverse,
                    at,
                    place,
                    "a distance that fits",
                    target.to_string(),
                ));
            }
        }
        for field in self.absolute_fields() {
            let at = field.place.distance_from(self.range.old_start) as usize;
            let bytes = scratch.get_mut(at..at + field.width);
            if let Some(bytes) = bytes.filter(|bytes| is_followed(self.images, field, bytes)) {
                bytes.copy_from_slice(&field.value.0.to_le_bytes()[..field.width]);
            }
        }
        match first_difference(scratch, self.old_bytes) {
            None => Ok(()),
            Some(at) => {
                let place = format!("the byte for {} moved back", self.range.old_start.plus(at as u64));
                Err(self.difference(
                    Check::Reverse,
                    at,
                    place,
                    format!("{:#04x}", self.old_bytes[at]),
                    format!("{:#04x}", scratch[at]),
                ))
            }
        }
    }

    /// The stored addresses in the function.
    fn absolute_fields(&self) -> &[AbsoluteField] {
        self.images.absolute.within(self.range.old_start, self.range.old_end())
    }

    /// A stored address that had to follow must be an operand of its instruction; otherwise it is not an address.
    fn check_operands(
        &self,
        decoder: &Decoder<'_>,
        instruction: &Instruction,
        start: usize,
    ) -> Result<(), Difference> {
        let fields = self.images.absolute.within(Address(instruction.ip()), Address(instruction.next_ip()));
        for field in fields.iter().filter(|field| self.images.mapped(field.value).0 != field.value.0) {
            let constants = decoder.get_constant_offsets(instruction);
            let operands = [
                (constants.displacement_offset(), constants.displacement_size()),
                (constants.immediate_offset(), constants.immediate_size()),
            ];
            let at = field.place.distance_from(Address(instruction.ip())) as usize;
            if !operands.contains(&(at, field.width)) {
                let place = format!("the address stored at {}", field.place);
                return Err(self.difference(
                    Check::AbsoluteAddresses,
                    start + at,
                    place,
                    "an operand",
                    "none",
                ));
            }
        }
        Ok(())
    }

    /// Compares the bytes from `from` to `to`: they are the same, except for stored addresses, which follow the map.
    fn same_bytes(&self, from: usize, to: usize) -> Result<(), Difference> {
        let start = self.range.old_start;
        let mut position = from;
        for field in self.images.absolute.within(start.plus(from as u64), start.plus(to as u64)) {
            let at = field.place.distance_from(start) as usize;
            let Some(bytes) = self.new_bytes.get(at..at + field.width).filter(|_| at >= position) else {
                continue;
            };
            self.identical_bytes(position, at)?;
            if !is_followed(self.images, field, bytes) {
                let place = format!("the address stored at {}", field.place);
                let expected = self.images.mapped(field.value).to_string();
                let found = format!("{:#x}", field.read(bytes).unwrap_or_default());
                return Err(self.difference(Check::AbsoluteAddresses, at, place, expected, found));
            }
            position = at + field.width;
        }
        self.identical_bytes(position, to.max(position))
    }

    fn identical_bytes(&self, from: usize, to: usize) -> Result<(), Difference> {
        let (old, new) = (&self.old_bytes[from..to], &self.new_bytes[from..to]);
        match first_difference(old, new) {
            None => Ok(()),
            Some(within) => {
                let at = from + within;
                let place = format!("code byte of {}", self.range.new_start.plus(at as u64));
                Err(self.difference(
                    Check::Functions,
                    at,
                    place,
                    format!("{:#04x}", old[within]),
                    format!("{:#04x}", new[within]),
                ))
            }
        }
    }

    /// `at` is the field's position in the function, `end` that of the instruction's end.
    fn check_field(&self, field: &AddressField, at: usize, end: usize) -> Result<(), Difference> {
        let distance = read_field(&self.new_bytes[at..at + field.width], field.width).unwrap_or_default();
        let found = self.range.new_start.plus(end as u64).plus(distance);
        let expected = if self.is_outside(Address(field.target)) {
            self.images.moves.map(Address(field.target))
        } else {
            NewAddress(field.target.wrapping_add(self.range.delta()))
        };
        // A branch to the function's own end leads into what follows or is never taken: both readings are sound.
        let is_own_end =
            field.is_branch && field.target == self.range.old_end().0 && found == self.range.new_end();
        let is_followed =
            found == expected || is_own_end || self.images.leads_to(Address(field.target), found);
        if is_followed {
            return Ok(());
        }
        let place =
            format!("target of {} (was {})", self.range.new_start.plus(at as u64), Address(field.target));
        Err(self.difference(Check::Functions, at, place, expected.to_string(), found.to_string()))
    }

    fn is_outside(&self, target: Address) -> bool {
        !(self.range.old_start..self.range.old_end()).contains(&target)
    }

    fn difference(
        &self,
        check: Check,
        at: usize,
        place: String,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Difference {
        Difference::new(check, Some(self.new_offset.plus(at as u64).0), place, expected, found)
    }
}

fn near_call(instruction: &Instruction) -> Option<Address> {
    let is_near = instruction.op0_kind() == OpKind::NearBranch64;
    (is_near && instruction.flow_control() == FlowControl::Call)
        .then(|| Address(instruction.near_branch_target()))
}

/// Whether control continues after the last instruction of a function.
pub(in crate::elf) fn falls_through(flow: FlowControl, code: Code) -> bool {
    match flow {
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            code != Code::Hlt
        }
        FlowControl::Interrupt => !matches!(code, Code::Int3 | Code::Int1),
        _ => false,
    }
}

fn is_followed(images: ImagePair<'_>, field: &AbsoluteField, bytes: &[u8]) -> bool {
    field.read(bytes).is_some_and(|found| images.holds_followed(field, NewAddress(found)))
}

fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    if left == right {
        return None;
    }
    left.iter().zip(right).position(|(left, right)| left != right)
}
