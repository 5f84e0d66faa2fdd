//! Walking code that no function describes and that has filler between its pieces.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use crate::decode::padding::{filler_length, is_no_operation};
use reorder_base::address::Address;

/// The instructions of a gap. Filler is skipped wherever control cannot arrive: at the start and after every
/// instruction that ends control. (Zero bytes would decode, but not to code that was written.)
pub(crate) struct GapInstructions<'data> {
    bytes: &'data [u8],
    start: Address,
    position: usize,
    control_arrives: bool,
}

impl<'data> GapInstructions<'data> {
    /// Walks `bytes`, which are at `start`.
    pub(crate) fn new(bytes: &'data [u8], start: Address) -> Self {
        Self { bytes, start, position: 0, control_arrives: false }
    }

    /// Whether control runs past the end of the walked code.
    pub(crate) fn falls_through(&self) -> bool {
        self.control_arrives
    }
}

impl Iterator for GapInstructions<'_> {
    type Item = Instruction;

    fn next(&mut self) -> Option<Instruction> {
        if !self.control_arrives {
            self.position += filler_length(&self.bytes[self.position..]);
        }
        let rest = &self.bytes[self.position..];
        if rest.is_empty() {
            return None;
        }
        let address = self.start.plus(self.position as u64);
        let instruction = Decoder::with_ip(64, rest, address.0, DecoderOptions::NONE).decode();
        self.position += instruction.len().max(1);
        if !is_no_operation(&instruction) {
            self.control_arrives = matches!(
                instruction.flow_control(),
                FlowControl::Next
                    | FlowControl::ConditionalBranch
                    | FlowControl::Call
                    | FlowControl::IndirectCall
            ) && instruction.mnemonic() != Mnemonic::Hlt;
        }
        Some(instruction)
    }
}

/// Length of `bytes` up to the filler at their end; `None` when a part is neither filler nor an instruction.
pub(crate) fn code_length(bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    for instruction in GapInstructions::new(bytes, Address(0)) {
        if instruction.is_invalid() {
            return None;
        }
        length = instruction.ip() as usize + instruction.len();
    }
    Some(length)
}

/// Whether `bytes`, which are at `start`, are code up to their end: their last instruction jumps to another of them. Data
/// after the code would hardly decode that way.
pub(crate) fn ends_with_jump(bytes: &[u8], start: Address) -> bool {
    let mut starts = BTreeSet::new();
    let mut last = None;
    for instruction in GapInstructions::new(bytes, start) {
        starts.insert(instruction.ip());
        last = Some(instruction);
    }
    last.is_some_and(|last| {
        last.next_ip() == start.plus(bytes.len() as u64).0
            && last.flow_control() == FlowControl::UnconditionalBranch
            && starts.contains(&last.near_branch_target())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_ends_with_a_jump_into_itself_is_told_from_data() {
        // ret; jmp to the ret.
        assert!(ends_with_jump(&[0xc3, 0xeb, 0xfd], Address(0x10)));
        // The jump leads elsewhere; something follows it; it is not a jump.
        assert!(!ends_with_jump(&[0xc3, 0xeb, 0xfc], Address(0x10)));
        assert!(!ends_with_jump(&[0xc3, 0xeb, 0xfd, 0x31, 0xc0, 0xc3], Address(0x10)));
        assert!(!ends_with_jump(&[0xc3, 0x31, 0xc0, 0xc3], Address(0x10)));
        assert!(!ends_with_jump(&[], Address(0x10)));
    }

    #[test]
    fn zeros_between_pieces_are_skipped() {
        // ret, three zeros, xor eax,eax, ret: as one stream the zeros would swallow the next instruction.
        let bytes = [0xc3, 0, 0, 0, 0x31, 0xc0, 0xc3];
        let found: Vec<u64> = GapInstructions::new(&bytes, Address(0x10)).map(|found| found.ip()).collect();
        assert_eq!(found, [0x10, 0x14, 0x16]);
    }

    #[test]
    fn zeros_at_the_end_of_an_instruction_are_no_filler() {
        // call +0x10 and four zeros that follow a return.
        assert_eq!(code_length(&[0xe8, 0x10, 0, 0, 0, 0xc3, 0, 0, 0, 0]), Some(6));
        assert_eq!(code_length(&[0x06]), None);
    }

    #[test]
    fn control_that_leaves_the_end_is_seen() {
        let mut walk = GapInstructions::new(&[0x31, 0xc0], Address(0));
        assert_eq!(walk.by_ref().count(), 1);
        assert!(walk.falls_through());
    }
}
