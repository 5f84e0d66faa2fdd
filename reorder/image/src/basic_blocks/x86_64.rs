//! Instructions of x86-64 functions.
//! Source: AMD64 Architecture Programmer's Manual, volume 3, "Instruction Encoding".

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::outline::Sketch;
use super::tables::Table;
use super::{LoadedBytes, Unclear};
use crate::decode::control::stops;
use crate::decode::padding::is_no_operation;
use reorder_base::address::Address;

/// How control reaches the next instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    /// From the one before it.
    FallThrough,
    /// After a call.
    AfterCall,
    /// After a call and padding: most likely by a jump, because the call does not return.
    AfterPaddedCall,
    /// By a jump alone, or never.
    AfterStop,
    /// By a branch that was not taken.
    AfterBranch,
}

/// All instructions of `code`, the function at `range`.
pub(super) fn sketch(loaded: &LoadedBytes, code: &[u8], range: &Range<Address>) -> Result<Sketch, Unclear> {
    let mut pass = Pass {
        loaded,
        range,
        sketch: Sketch { masked: code.to_vec(), ..Sketch::default() },
        has_computed_jump: false,
    };
    let mut decoder = Decoder::with_ip(64, code, range.start.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut reached = Reached::FallThrough;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return Err(Unclear::NotDecodable);
        }
        let offset = instruction.ip().wrapping_sub(range.start.0) as u32;
        pass.sketch.instructions.push(offset);
        if is_no_operation(&instruction) {
            reached = match reached {
                Reached::AfterCall => Reached::AfterPaddedCall,
                Reached::AfterBranch => {
                    pass.sketch.leaders.push(offset);
                    Reached::FallThrough
                }
                other => other,
            };
            continue;
        }
        let begins_block =
            matches!(reached, Reached::AfterPaddedCall | Reached::AfterStop | Reached::AfterBranch);
        // `endbr64` marks what computed jumps may lead to.
        if begins_block || instruction.mnemonic() == Mnemonic::Endbr64 {
            pass.sketch.leaders.push(offset);
        }
        pass.branch(&decoder, &instruction)?;
        pass.memory(&decoder, &instruction)?;
        pass.numbers(&decoder, &instruction)?;
        reached = after(&instruction);
        let end = offset + instruction.len() as u32;
        match reached {
            Reached::AfterStop => pass.sketch.stops.push((end, pass.own_target(&instruction))),
            Reached::AfterBranch => pass.sketch.branches.push(end),
            _ => {}
        }
        if is_call(&instruction) {
            pass.sketch.calls.push(offset);
        }
        if matches!(instruction.flow_control(), FlowControl::IndirectCall | FlowControl::IndirectBranch) {
            pass.sketch.computed.push(offset);
        }
    }
    if !pass.has_computed_jump {
        pass.sketch.tables.clear();
    }
    Ok(pass.sketch)
}

fn after(instruction: &Instruction) -> Reached {
    match instruction.flow_control() {
        _ if stops(instruction) => Reached::AfterStop,
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => Reached::AfterBranch,
        FlowControl::Call | FlowControl::IndirectCall => Reached::AfterCall,
        _ => Reached::FallThrough,
    }
}

/// Whether something else runs before the next instruction, or none does.
fn is_call(instruction: &Instruction) -> bool {
    let is_of_system = matches!(instruction.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter);
    let is_other = matches!(
        instruction.flow_control(),
        FlowControl::Call | FlowControl::IndirectCall | FlowControl::Interrupt | FlowControl::Exception
    );
    is_of_system || is_other
}

struct Pass<'run> {
    loaded: &'run LoadedBytes,
    range: &'run Range<Address>,
    sketch: Sketch,
    has_computed_jump: bool,
}

impl Pass<'_> {
    /// Where a jump that stays in the function is sure to lead.
    fn own_target(&self, instruction: &Instruction) -> Option<u32> {
        let is_jump = instruction.flow_control() == FlowControl::UnconditionalBranch
            && instruction.op0_kind() == OpKind::NearBranch64;
        let target = Address(instruction.near_branch_target());
        let is_own = is_jump && self.range.contains(&target);
        is_own.then(|| target.distance_from(self.range.start) as u32)
    }

    /// Notes where a branch leads.
    fn branch(&mut self, decoder: &Decoder<'_>, instruction: &Instruction) -> Result<(), Unclear> {
        let is_call = instruction.flow_control() == FlowControl::Call;
        self.has_computed_jump |= instruction.flow_control() == FlowControl::IndirectBranch;
        match instruction.op0_kind() {
            OpKind::NearBranch64 => {}
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::FarBranch16 | OpKind::FarBranch32 => {
                return Err(Unclear::NotDecodable);
            }
            _ => return Ok(()),
        }
        let target = Address(instruction.near_branch_target());
        if !self.range.contains(&target) {
            let field = decoder.get_constant_offsets(instruction);
            self.mask(instruction, field.immediate_offset(), field.immediate_size());
            let offset = instruction.ip().wrapping_sub(self.range.start.0) as u32;
            self.sketch.called.push((offset, target));
            if !is_call {
                self.sketch.leaving.push(target);
            }
            return Ok(());
        }
        match is_call {
            // It may learn its own place, or be called by something else there.
            true if target != self.range.start => return Err(Unclear::OwnAddress),
            true => {}
            false => self.sketch.leaders.push(target.distance_from(self.range.start) as u32),
        }
        Ok(())
    }

    /// Notes the address that an operand states relative to the instruction.
    fn memory(&mut self, decoder: &Decoder<'_>, instruction: &Instruction) -> Result<(), Unclear> {
        if !instruction.is_ip_rel_memory_operand() {
            return Ok(());
        }
        if instruction.memory_base() != Register::RIP {
            return Err(Unclear::NotDecodable);
        }
        let target = Address(instruction.ip_rel_memory_address());
        let is_address = instruction.mnemonic() == Mnemonic::Lea;
        if self.range.contains(&target) {
            return match is_address {
                true if target == self.range.start => Ok(()),
                true => Err(Unclear::OwnAddress),
                false => Err(Unclear::OwnData),
            };
        }
        let field = decoder.get_constant_offsets(instruction);
        self.mask(instruction, field.displacement_offset(), field.displacement_size());
        if is_address {
            self.sketch.tables.push(Table::Distances(target));
        }
        Ok(())
    }

    /// Notes numbers that may be addresses of an image at a fixed address.
    fn numbers(&mut self, decoder: &Decoder<'_>, instruction: &Instruction) -> Result<(), Unclear> {
        if self.loaded.fixed.is_none() {
            return Ok(());
        }
        let field = decoder.get_constant_offsets(instruction);
        if field.displacement_size() >= 4 && !instruction.is_ip_rel_memory_operand() {
            let number = instruction.memory_displacement64();
            self.number(instruction, number, field.displacement_offset(), field.displacement_size())?;
            if instruction.memory_index_scale() == 8 && self.loaded.may_be_address(number) {
                self.sketch.tables.push(Table::Addresses(Address(number)));
            }
        }
        if field.immediate_size() >= 4 && instruction.op0_kind() != OpKind::NearBranch64 {
            let mut operands = 0..instruction.op_count();
            let number = operands.find_map(|operand| instruction.try_immediate(operand).ok());
            if let Some(number) = number {
                self.number(instruction, number, field.immediate_offset(), field.immediate_size())?;
            }
        }
        Ok(())
    }

    fn number(
        &mut self,
        instruction: &Instruction,
        number: u64,
        offset: usize,
        size: usize,
    ) -> Result<(), Unclear> {
        let target = Address(number);
        if self.range.contains(&target) && target != self.range.start {
            return Err(Unclear::OwnAddress);
        }
        if self.loaded.may_be_address(number) {
            self.mask(instruction, offset, size);
        }
        Ok(())
    }

    /// Zeroes `size` bytes from `offset` of the instruction on.
    fn mask(&mut self, instruction: &Instruction, offset: usize, size: usize) {
        let first = instruction.ip().wrapping_sub(self.range.start.0) as usize + offset;
        if let Some(field) = self.sketch.masked.get_mut(first..first + size) {
            field.fill(0);
        }
    }
}
