//! Functions with another target, or at the address of another function.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::{Code, CorrectOutput};
use crate::change::add;
use crate::random::Random;

/// The kind of reference to redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Branch {
    Call,
    Jump,
    Data,
}

impl CorrectOutput {
    /// Another target for a branch or a reference to data.
    pub(super) fn redirect(&self, bytes: &mut [u8], random: &mut Random, wanted: Branch) -> Option<()> {
        let function = random.of(&self.functions)?;
        let code = self.new.get(function.bytes.clone())?;
        if self.is_arm {
            let words: Vec<usize> = (0..code.len() / 4).map(|word| function.bytes.start + word * 4).collect();
            let meant = |at: &&usize| {
                let word = u32::from_le_bytes(self.new[**at..**at + 4].try_into().unwrap_or_default());
                match wanted {
                    Branch::Call => word >> 26 == 0b10_0101,
                    Branch::Jump => word >> 26 == 0b00_0101 || word >> 24 == 0x54,
                    Branch::Data => word & 0x9f00_0000 == 0x9000_0000,
                }
            };
            let sites: Vec<usize> = words.iter().filter(meant).copied().collect();
            return add(bytes, *random.of(&sites)?, 4, 32 * (1 + random.below(3) as u64));
        }
        let mut sites = Vec::new();
        let mut decoder = Decoder::with_ip(64, code, function.address, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let start = decoder.position();
            decoder.decode_out(&mut instruction);
            let offsets = decoder.get_constant_offsets(&instruction);
            let is_near = instruction.op0_kind() == OpKind::NearBranch64;
            let is_call = instruction.flow_control() == FlowControl::Call;
            let found = match wanted {
                Branch::Call if is_near && is_call => {
                    Some((offsets.immediate_offset(), offsets.immediate_size()))
                }
                Branch::Jump if is_near && !is_call => {
                    Some((offsets.immediate_offset(), offsets.immediate_size()))
                }
                Branch::Data if instruction.is_ip_rel_memory_operand() => {
                    Some((offsets.displacement_offset(), offsets.displacement_size()))
                }
                _ => None,
            };
            sites.extend(
                found.map(|(offset, size)| {
                    (function.bytes.start + start + offset, size, instruction.next_ip())
                }),
            );
        }
        let &(at, size, next) = random.of(&sites)?;
        let other = random.of(&self.functions)?;
        if size == 4 && random.below(2) == 0 {
            let distance = other.address.wrapping_sub(next) as u32;
            bytes.get_mut(at..at + 4)?.copy_from_slice(&distance.to_le_bytes());
            Some(())
        } else {
            add(bytes, at, size, 1 + random.below(16) as u64)
        }
    }

    /// The bytes of two functions of one size, exchanged.
    pub(super) fn swap_functions(&self, bytes: &mut [u8], random: &mut Random) -> Option<()> {
        let one = random.of(&self.functions)?;
        let same: Vec<&Code> = self
            .functions
            .iter()
            .filter(|other| other.bytes.len() == one.bytes.len() && other.address != one.address)
            .collect();
        let other = random.of(&same)?;
        if one.bytes.start < other.bytes.end && other.bytes.start < one.bytes.end {
            return None;
        }
        let (left, right) = (self.new[one.bytes.clone()].to_vec(), self.new[other.bytes.clone()].to_vec());
        bytes[one.bytes.clone()].copy_from_slice(&right);
        bytes[other.bytes.clone()].copy_from_slice(&left);
        Some(())
    }
}
