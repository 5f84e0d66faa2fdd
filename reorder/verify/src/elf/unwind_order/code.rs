//! What the code of a function looks like wherever it is, and where it leads.

use std::hash::{DefaultHasher, Hash, Hasher};

use goblin::elf::header::ET_EXEC;
use iced_x86::{ConstantOffsets, Decoder, DecoderOptions, FlowControl, Instruction};

use crate::elf::view::ElfView;
use crate::fields::{Addressing, addressing};

/// The code of one function.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    /// Of its bytes but for addresses of code, and of the addresses of everything else.
    pub(super) digest: u64,
    /// The addresses of code outside of it that its instructions name, in their order.
    pub(super) targets: Vec<u64>,
    /// Control runs into the function after it, which moves along.
    pub(super) runs_on: bool,
}

impl Code {
    /// Reads the function of `size` bytes at `start`; nothing where it has no code in the file.
    pub(super) fn of(image: &ElfView<'_>, start: u64, size: u64) -> Self {
        let end = start.saturating_add(size);
        let code = image.code_at(start, end).and_then(|section| section.at(start, size));
        let Some(code) = code else { return Self::default() };
        let mut masked = code.to_vec();
        let mut found = Self::default();
        let mut digest = DefaultHasher::new();
        let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let is_fixed = image.header.e_type == ET_EXEC;
        while decoder.can_decode() {
            let position = decoder.position();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                break;
            }
            let mut name = |offset: usize, width: usize, target: u64| {
                let field = position + offset;
                if let Some(field) = masked.get_mut(field..field + width) {
                    field.fill(0);
                }
                match (start..end).contains(&target) {
                    true => (target - start).hash(&mut digest),
                    false if image.code_at(target, target).is_some() => found.targets.push(target),
                    false => target.hash(&mut digest),
                }
            };
            if let Addressing::Field(field) = addressing(&decoder, &instruction) {
                name(field.offset, field.width, field.target);
            }
            if is_fixed {
                let constants = decoder.get_constant_offsets(&instruction);
                for (offset, width, value) in stated(&constants, &instruction) {
                    if image.code_at(value, value).is_some() {
                        name(offset, width, value);
                    }
                }
            }
        }
        // A call at the end does not return.
        if matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch) {
            found.runs_on = true;
        }
        masked.hash(&mut digest);
        found.digest = digest.finish();
        found
    }
}

/// The constants of an instruction that may be whole addresses: offset, width, value.
fn stated(
    constants: &ConstantOffsets,
    instruction: &Instruction,
) -> impl Iterator<Item = (usize, usize, u64)> + use<> {
    let displacement = (constants.has_displacement() && !instruction.is_ip_rel_memory_operand()).then(|| {
        (constants.displacement_offset(), constants.displacement_size(), instruction.memory_displacement64())
    });
    let immediate = (0..instruction.op_count()).find_map(|operand| instruction.try_immediate(operand).ok());
    let immediate = immediate
        .filter(|_| constants.has_immediate())
        .map(|value| (constants.immediate_offset(), constants.immediate_size(), value));
    displacement.into_iter().chain(immediate).filter(|&(_, width, _)| width >= 4)
}
