//! What x86-64 functions do with the address that they return to.
//! Source: System V ABI AMD64, "The Stack Frame".

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use reorder_image::decode::x86_64::CALL_CLOBBERED;

/// Where values are on the stack, by the register that counts and the distance from what it points to.
type Slot = (Register, u64);

/// What holds the return address before an instruction.
#[derive(Clone)]
struct Holders {
    /// How far the stack pointer is below the return address, while that is known.
    depth: Option<i64>,
    has_frame: bool,
    registers: BTreeSet<Register>,
    slots: BTreeSet<Slot>,
}

/// Whether the function at the start of `bytes` adds to the address, compares it or reads what it points to. Branches
/// that lead forwards are followed.
pub(super) fn computes_with_return_address(bytes: &[u8]) -> bool {
    let first =
        Holders { depth: Some(0), has_frame: false, registers: BTreeSet::new(), slots: BTreeSet::new() };
    let mut waiting = BTreeMap::from([(0, first)]);
    // Ends: places only ascend.
    while let Some((place, holders)) = waiting.pop_first() {
        if run(bytes, place, holders, &mut waiting) {
            return true;
        }
    }
    false
}

/// Follows code from `place` to its end, or to where something else is `waiting`; true when it computes with the address.
fn run(bytes: &[u8], place: usize, mut holders: Holders, waiting: &mut BTreeMap<usize, Holders>) -> bool {
    let code = bytes.get(place..).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, code, place as u64, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return false;
        }
        if holders.step(&instruction) {
            return true;
        }
        let next = instruction.next_ip() as usize;
        let flow = instruction.flow_control();
        if matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch) {
            let target = instruction.near_branch_target() as usize;
            if (next..bytes.len()).contains(&target) {
                wait(waiting, target, holders.clone());
            }
        }
        if matches!(
            flow,
            FlowControl::UnconditionalBranch
                | FlowControl::Return
                | FlowControl::IndirectBranch
                | FlowControl::Exception
        ) {
            return false;
        }
        if waiting.contains_key(&next) {
            wait(waiting, next, holders);
            return false;
        }
    }
    false
}

/// Adds to what holds the address at `place` what holds it on another way there.
fn wait(waiting: &mut BTreeMap<usize, Holders>, place: usize, holders: Holders) {
    let Some(known) = waiting.get_mut(&place) else {
        waiting.insert(place, holders);
        return;
    };
    known.depth = known.depth.filter(|depth| holders.depth == Some(*depth));
    known.has_frame |= holders.has_frame;
    known.registers.extend(holders.registers);
    known.slots.extend(holders.slots);
}

impl Holders {
    /// Takes one instruction; true when it computes with the address.
    fn step(&mut self, instruction: &Instruction) -> bool {
        let is_register = |operand: u32| instruction.op_kind(operand) == OpKind::Register;
        let register = |operand: u32| instruction.op_register(operand).full_register();
        match instruction.mnemonic() {
            Mnemonic::Mov if is_register(0) && is_register(1) => {
                self.set(register(0), self.registers.contains(&register(1)));
                if register(0) == Register::RBP && register(1) == Register::RSP {
                    self.has_frame = self.depth == Some(8);
                }
                if register(0) == Register::RSP {
                    self.depth = None;
                }
            }
            Mnemonic::Mov if is_register(0) && instruction.op1_kind() == OpKind::Memory => {
                if self.is_read(instruction) {
                    return true;
                }
                let is_held = self.holds(instruction);
                self.set(register(0), is_held);
            }
            Mnemonic::Mov if is_register(1) => {
                if self.registers.contains(&register(1)) {
                    self.slots.insert((instruction.memory_base(), instruction.memory_displacement64()));
                }
                return self.is_read(instruction);
            }
            Mnemonic::Push => {
                self.depth = self.depth.and_then(|depth| depth.checked_add(8));
            }
            Mnemonic::Pop => {
                if is_register(0) {
                    self.set(register(0), self.depth == Some(0));
                }
                self.depth = self.depth.and_then(|depth| depth.checked_sub(8));
            }
            Mnemonic::Add | Mnemonic::Sub if is_register(0) && register(0) == Register::RSP => {
                let step = instruction.try_immediate(1).ok().map(|step| step as i64);
                let change = |depth: i64, step: i64| match instruction.mnemonic() {
                    Mnemonic::Sub => depth.checked_add(step),
                    _ => depth.checked_sub(step),
                };
                self.depth = self.depth.zip(step).and_then(|(depth, step)| change(depth, step));
            }
            Mnemonic::Test => return self.is_read(instruction),
            Mnemonic::Call if instruction.flow_control() == FlowControl::Call => {
                for scratch in CALL_CLOBBERED {
                    self.registers.remove(&scratch);
                }
            }
            // A jump to the return address is a return.
            _ if instruction.flow_control() == FlowControl::IndirectBranch => {
                return self.is_read(instruction);
            }
            _ => return self.is_operand(instruction),
        }
        false
    }

    fn set(&mut self, register: Register, is_held: bool) {
        match is_held {
            true => self.registers.insert(register),
            false => self.registers.remove(&register),
        };
    }

    /// Whether the memory operand is where the call put the return address, or a slot that it was stored in since.
    fn holds(&self, instruction: &Instruction) -> bool {
        if instruction.memory_index() != Register::None {
            return false;
        }
        let (base, displacement) = (instruction.memory_base(), instruction.memory_displacement64());
        let is_first = match base {
            Register::RSP => self.depth == Some(displacement as i64),
            Register::RBP => self.has_frame && displacement == 8,
            _ => false,
        };
        is_first || self.slots.contains(&(base, displacement))
    }

    /// Whether what the address points to is read or written.
    fn is_read(&self, instruction: &Instruction) -> bool {
        let has_memory =
            (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
        let parts = [instruction.memory_base(), instruction.memory_index()];
        has_memory && parts.iter().any(|part| self.registers.contains(part))
    }

    /// Whether the address takes part in any other way.
    fn is_operand(&self, instruction: &Instruction) -> bool {
        let is_held = |operand: u32| match instruction.op_kind(operand) {
            OpKind::Register => self.registers.contains(&instruction.op_register(operand).full_register()),
            OpKind::Memory => instruction.mnemonic() != Mnemonic::Lea && self.holds(instruction),
            _ => false,
        };
        self.is_read(instruction) || (0..instruction.op_count()).any(is_held)
    }
}

#[cfg(test)]
mod tests {
    use super::computes_with_return_address;

    #[test]
    fn computing_is_told_from_keeping() {
        // push rbp; mov rbp,rsp; mov r10,[rbp+8]; inc r10; call r10.
        assert!(computes_with_return_address(&[
            0x55, 0x48, 0x89, 0xe5, 0x4c, 0x8b, 0x55, 8, 0x49, 0xff, 0xc2, 0x41, 0xff, 0xd2
        ]));
        // mov rax,[rsp]; movzx eax,byte [rax]; ret.
        assert!(computes_with_return_address(&[0x48, 0x8b, 4, 0x24, 0x0f, 0xb6, 0, 0xc3]));
        // sub rsp,8; mov rax,[rsp+8]; mov [rsp],rax; cmp [rsp],rdi; ret.
        assert!(computes_with_return_address(&[
            0x48, 0x83, 0xec, 8, 0x48, 0x8b, 0x44, 0x24, 8, 0x48, 0x89, 4, 0x24, 0x48, 0x39, 0x3c, 0x24, 0xc3
        ]));
        // mov rdi,[rsp]; jmp elsewhere: handed on. pop rdx; jmp rdx: a return.
        assert!(!computes_with_return_address(&[0x48, 0x8b, 0x3c, 0x24, 0xc3]));
        assert!(!computes_with_return_address(&[0x5a, 0xff, 0xe2]));
        // add rsp,-128; mov rax,[rsp+128]; inc rax; ret, as compilers make room for frames of 128 bytes.
        assert!(computes_with_return_address(&[
            0x48, 0x83, 0xc4, 0x80, 0x48, 0x8b, 0x84, 0x24, 0x80, 0, 0, 0, 0x48, 0xff, 0xc0, 0xc3
        ]));
        // sub rsp,-8; push rax; ret: the stack pointer above where it was.
        assert!(!computes_with_return_address(&[0x48, 0x83, 0xec, 0xf8, 0x50, 0xc3]));
        // test edi,edi; je +7; inc eax; jmp far ahead; mov rax,[rsp+8] in the next function; inc rax; ret.
        assert!(!computes_with_return_address(&[
            0x85, 0xff, 0x74, 7, 0xff, 0xc0, 0xe9, 0, 1, 0, 0, 0xc3, 0x48, 0x8b, 4, 0x24, 0x48, 0xff, 0xc0,
            0xc3
        ]));
        // je +1; ret; mov rax,[rsp]; inc rax; ret: after a return that a branch passes.
        assert!(computes_with_return_address(&[0x74, 1, 0xc3, 0x48, 0x8b, 4, 0x24, 0x48, 0xff, 0xc0, 0xc3]));
        // push rax; mov rax,[rsp]; inc rax; ret: another word.
        assert!(!computes_with_return_address(&[0x50, 0x48, 0x8b, 4, 0x24, 0x48, 0xff, 0xc0, 0xc3]));
    }
}
