//! Where control goes on after an instruction, the same for both processors.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::aarch64::{Operation, WORD, decode};
use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// What one instruction does to control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlStep {
    /// Bytes of the instruction.
    pub length: u64,
    /// Control may go on after it.
    pub continues: bool,
    /// Where it jumps or calls, if it names the place.
    pub target: Option<Address>,
    /// It jumps to a place that it computes or reads.
    pub jumps_to_computed: bool,
    /// The address that it puts into a register.
    pub formed: Option<Address>,
    /// The table of addresses that it loads an entry of, or jumps through.
    pub loads_from: Option<Address>,
}

/// The instruction at the start of `bytes`, which lie at `address`; `None` if they are none.
#[must_use]
pub fn control_step(processor: Processor, bytes: &[u8], address: Address) -> Option<ControlStep> {
    match processor {
        Processor::X86_64 => x86_64(bytes, address),
        Processor::Aarch64 => aarch64(bytes, address),
        Processor::Other => None,
    }
}

fn x86_64(bytes: &[u8], address: Address) -> Option<ControlStep> {
    let instruction = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return None;
    }
    let flow = instruction.flow_control();
    let stops =
        matches!(flow, FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return);
    let is_formed = instruction.mnemonic() == Mnemonic::Lea && instruction.memory_base() == Register::RIP;
    let reads_entry = (0..instruction.op_count())
        .any(|operand| instruction.op_kind(operand) == OpKind::Memory)
        && instruction.memory_base() == Register::None
        && instruction.memory_index() != Register::None
        && instruction.memory_index_scale() == 8;
    let names_target = instruction.op0_kind() == OpKind::NearBranch64;
    Some(ControlStep {
        length: instruction.len() as u64,
        continues: !stops && instruction.mnemonic() != Mnemonic::Hlt,
        target: names_target.then(|| Address(instruction.near_branch_target())),
        jumps_to_computed: flow == FlowControl::IndirectBranch,
        formed: is_formed.then(|| Address(instruction.ip_rel_memory_address())),
        loads_from: reads_entry.then(|| Address(instruction.memory_displacement64())),
    })
}

fn aarch64(bytes: &[u8], address: Address) -> Option<ControlStep> {
    let word = u32::from_le_bytes(*bytes.first_chunk()?);
    let operation = decode(word, address);
    let (continues, target, formed) = match operation {
        Operation::Invalid => return None,
        Operation::Branch(target) => (false, Some(target), None),
        Operation::Call(target) | Operation::ConditionalBranch(target) => (true, Some(target), None),
        Operation::BranchRegister(_) | Operation::Return | Operation::Trap => (false, None, None),
        Operation::Adr(_, formed) => (true, None, Some(formed)),
        _ => (true, None, None),
    };
    let jumps_to_computed = matches!(operation, Operation::BranchRegister(_));
    Some(ControlStep { length: WORD, continues, target, jumps_to_computed, formed, loads_from: None })
}

/// Whether control does not go on after an instruction of x86-64, unless a handler of signals makes it go on.
pub(crate) fn stops(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Exception => true,
        FlowControl::Interrupt => instruction.mnemonic() == Mnemonic::Int3,
        _ => instruction.mnemonic() == Mnemonic::Hlt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Address = Address(0x1000);

    fn x86(bytes: &[u8]) -> ControlStep {
        control_step(Processor::X86_64, bytes, PLACE).expect("an instruction")
    }

    #[test]
    fn jumps_calls_and_returns_of_x86_64_are_told_apart() {
        let call = x86(&[0xe8, 0x10, 0, 0, 0]);
        assert_eq!((call.length, call.continues, call.target), (5, true, Some(Address(0x1015))));
        let jump = x86(&[0xeb, 0xfe]);
        assert_eq!((jump.continues, jump.target), (false, Some(PLACE)));
        assert!(x86(&[0xff, 0xe0]).jumps_to_computed, "jmp *%rax");
        assert!(!x86(&[0xc3]).continues && !x86(&[0xc3]).jumps_to_computed, "ret");
        assert_eq!(x86(&[0x48, 0x8d, 0x05, 1, 0, 0, 0]).formed, Some(Address(0x1008)), "lea 1(%rip), %rax");
        assert_eq!(control_step(Processor::X86_64, &[0x06], PLACE), None);
    }

    #[test]
    fn jumps_calls_and_returns_of_aarch64_are_told_apart() {
        let step = |word: u32| control_step(Processor::Aarch64, &word.to_le_bytes(), PLACE);
        let call = step(0x9400_0002).expect("bl");
        assert_eq!((call.continues, call.target), (true, Some(Address(0x1008))));
        let jump = step(0xd61f_0000).expect("br x0");
        assert!(jump.jumps_to_computed && !jump.continues);
        assert!(!step(0xd65f_03c0).expect("ret").continues);
        assert_eq!(control_step(Processor::Other, &[0; 4], PLACE), None);
    }
}
