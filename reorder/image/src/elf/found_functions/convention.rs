//! Functions with a convention of their own, which are left alone.
//!
//! Compiled functions save a register that calls preserve before they use it. Run-times with generated code keep the address of
//! their data in such a register, as V8's builtins do in `r13`, and know each of their return addresses: they look it up when an exception
//! is thrown or garbage is collected, so no call may return into a copy. A function is of this kind if it reads memory through
//! such a register and never sets it, or if it passes the register on: it calls such a function and does not set the register. Functions
//! that set the register and call such a function are entrances of the run-time. It knows their return addresses, too.
//!
//! Parts that a compiler split off look the same. Their functions jump to them instead of calling, so only the parts are left alone.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use rayon::prelude::*;

use super::search::Search;
use crate::decode::x86_64::is_preserved;
use reorder_base::address::Address;

/// What a function does with the registers that calls preserve, a bit for each.
struct Use {
    /// It reads or writes memory through them.
    based: u8,
    /// It sets them to something else than what was saved on the stack.
    set: u8,
    /// Indices of the functions that it calls.
    calls: Vec<usize>,
}

impl Search<'_, '_> {
    /// Those of the `found` functions, which ascend and are disjoint, that keep to the convention of compilers.
    pub(super) fn conventional(&self, found: Vec<Range<Address>>) -> Vec<Range<Address>> {
        let uses: Vec<Use> = found.par_iter().map(|range| self.use_of(range, &found)).collect();
        let mut callers: Vec<Vec<usize>> = vec![Vec::new(); found.len()];
        for (caller, function) in uses.iter().enumerate() {
            function.calls.iter().for_each(|&callee| callers[callee].push(caller));
        }
        let mut expected: Vec<u8> = uses.iter().map(|function| function.based & !function.set).collect();
        let mut waiting: Vec<usize> = (0..found.len()).filter(|&index| expected[index] != 0).collect();
        // Ends: each function waits once for each of its registers at most.
        while let Some(callee) = waiting.pop() {
            for &caller in &callers[callee] {
                let passed = expected[callee] & !uses[caller].set;
                if expected[caller] | passed != expected[caller] {
                    expected[caller] |= passed;
                    waiting.push(caller);
                }
            }
        }
        let is_own = |index: usize| {
            expected[index] != 0 || uses[index].calls.iter().any(|&callee| expected[callee] != 0)
        };
        let mut index = 0..;
        found.into_iter().filter(|_| index.next().is_some_and(|index| !is_own(index))).collect()
    }

    fn use_of(&self, range: &Range<Address>, found: &[Range<Address>]) -> Use {
        let mut function = Use { based: 0, set: 0, calls: Vec::new() };
        for instruction in self.instructions(range) {
            let is_address_alone = instruction.mnemonic() == Mnemonic::Lea;
            if !is_address_alone {
                function.based |= preserved(instruction.memory_base());
            }
            function.set |= set_by(&instruction);
            if instruction.flow_control() == FlowControl::Call
                && instruction.op0_kind() == OpKind::NearBranch64
            {
                let target = Address(instruction.near_branch_target());
                function.calls.extend(found.binary_search_by_key(&target, |range| range.start));
            }
        }
        function
    }
}

/// The bit of a register that calls preserve.
fn preserved(register: Register) -> u8 {
    match register.full_register() {
        full if !is_preserved(full) => 0,
        Register::RBX => 1,
        full => 1 << (full.number() - Register::R12.number() + 1),
    }
}

/// The registers that an instruction sets. A pop gives back what was saved.
fn set_by(instruction: &Instruction) -> u8 {
    let reads_alone = matches!(
        instruction.mnemonic(),
        Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Bt | Mnemonic::Push | Mnemonic::Pop
    );
    let is_exchange = matches!(instruction.mnemonic(), Mnemonic::Xchg | Mnemonic::Xadd);
    let register = |number| match instruction.op_kind(number) {
        OpKind::Register => preserved(instruction.op_register(number)),
        _ => 0,
    };
    match instruction.op_count() {
        0 => 0,
        _ if reads_alone => 0,
        count => register(0) | if is_exchange && count > 1 { register(1) } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::*;

    #[test]
    fn registers_have_bits_of_their_own_and_saving_one_does_not_set_it() {
        let all = [Register::RBX, Register::R12D, Register::R13W, Register::R14L, Register::R15];
        assert_eq!(all.map(preserved), [1, 2, 4, 8, 16]);
        assert_eq!([Register::RAX, Register::RBP, Register::RSP, Register::XMM3].map(preserved), [0; 4]);
        let set = |code: &[u8]| set_by(&Decoder::new(64, code, DecoderOptions::NONE).decode());
        // mov r13, rdi; push r13; pop r13; cmp rbx, 2; mov [r13], rbx; xchg rax, rbx
        assert_eq!((set(&[0x49, 0x89, 0xfd]), set(&[0x41, 0x55]), set(&[0x41, 0x5d])), (4, 0, 0));
        assert_eq!((set(&[0x48, 0x83, 0xfb, 2]), set(&[0x49, 0x89, 0x5d, 0])), (0, 0));
        assert_eq!(set(&[0x48, 0x87, 0xc3]) & 1, 1);
    }
}
