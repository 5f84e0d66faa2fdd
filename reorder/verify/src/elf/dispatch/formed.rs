//! Addresses that code computes and then calls or jumps to through a register.
//!
//! GCC's `-mforce-indirect-call` calls every function this way.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind};

use super::state::number_of;

/// A bit for each of the sixteen registers, by its number.
pub(crate) type RegisterSet = u16;

/// Addresses that a sequence of instructions computed: for each register, the address of the instruction and the computed
/// address.
#[derive(Debug, Default)]
pub(super) struct Formed([Option<(u64, u64)>; 16]);

impl Formed {
    /// Applies `instruction`; `written` are the registers that this one, or what it calls, may write.
    pub(super) fn follow(&mut self, instruction: &Instruction, written: RegisterSet) {
        (0..16).filter(|number| written >> number & 1 == 1).for_each(|number| self.0[number] = None);
        let is_address = instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand();
        let register = number_of(instruction.op0_register()).filter(|_| is_address);
        if let Some(slot) = register.and_then(|number| self.0.get_mut(number)) {
            *slot = Some((instruction.ip(), instruction.ip_rel_memory_address()));
        }
    }

    /// For a call or jump through a register: the address of the instruction that formed its target, and the target.
    pub(super) fn called(&self, call: &Instruction) -> Option<(u64, u64)> {
        let register = (call.op0_kind() == OpKind::Register).then(|| call.op0_register())?;
        self.0.get(number_of(register)?).copied().flatten()
    }
}

/// The registers that an instruction may write.
pub(super) fn written_by(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> RegisterSet {
    let is_written = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        )
    };
    let used = factory.info(instruction).used_registers().iter();
    let numbers = used.filter(|used| is_written(used.access())).filter_map(|used| number_of(used.register()));
    numbers.fold(0, |all, number| all | 1 << number)
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    #[test]
    fn all_that_an_instruction_changes_counts() {
        let written = |bytes: &[u8]| {
            let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
            written_by(&instruction, &mut InstructionInfoFactory::new())
        };
        const RAX: RegisterSet = 1;
        const RCX: RegisterSet = 1 << 1;
        const RDX: RegisterSet = 1 << 2;
        const R11: RegisterSet = 1 << 11;
        // add al, cl; mul rcx; syscall
        assert_eq!(written(&[0x00, 0xc8]), RAX);
        assert_eq!(written(&[0x48, 0xf7, 0xe1]), RAX | RDX);
        assert_eq!(written(&[0x0f, 0x05]) & (RCX | R11), RCX | R11);
    }

    #[test]
    fn an_address_is_known_until_its_register_is_written() {
        const RAX: RegisterSet = 1;
        // lea rax, [rip + 0x10]; call rax
        let code = [0x48, 0x8d, 0x05, 0x10, 0, 0, 0, 0xff, 0xd0];
        let mut decoder = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE);
        let (lea, call) = (decoder.decode(), decoder.decode());
        let mut formed = Formed::default();
        assert_eq!(formed.called(&call), None);
        formed.follow(&lea, RAX);
        assert_eq!(formed.called(&call), Some((0x1000, 0x1017)));
        formed.follow(&call, 0);
        assert_eq!(formed.called(&call), Some((0x1000, 0x1017)));
        formed.follow(&call, RAX);
        assert_eq!(formed.called(&call), None);
    }
}
