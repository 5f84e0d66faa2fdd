//! Functions with a convention of their own, which are left alone.
//!
//! Compiled functions save a register that calls preserve before they use it. Run-times with generated code keep an address of their
//! data in one instead, as V8's builtins do in `r13`, and know each of their return addresses: they look it up when an exception
//! is thrown or garbage is collected, so no call may return into a copy. A function is of this kind if it reads memory through
//! such a register and never sets it, or if it passes the register on: it calls such a function and does not set the register. Functions
//! that set the register and call such a function are the entrances of the run-time, which knows their return addresses, too.
//!
//! Parts that a compiler split off look the same. They are rarely executed, and their functions jump to them instead of calling.

use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use rayon::prelude::*;

use super::search::Search;
use reorder_base::address::Address;

/// Calls through functions that pass the register on; longer chains are followed no further.
const MAX_ROUNDS: usize = 64;

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
        let mut expected: Vec<u8> = uses.iter().map(|function| function.based & !function.set).collect();
        for _ in 0..MAX_ROUNDS {
            let mut has_changed = false;
            for (index, function) in uses.iter().enumerate() {
                let passed = function.calls.iter().fold(0, |all, &callee| all | expected[callee]);
                let now = expected[index] | passed & !function.set;
                has_changed |= now != expected[index];
                expected[index] = now;
            }
            if !has_changed {
                break;
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

/// The bit of a register that calls preserve; RBP, which holds the frame, has none.
fn preserved(register: Register) -> u8 {
    match register.full_register() {
        Register::RBX => 1,
        Register::R12 => 2,
        Register::R13 => 4,
        Register::R14 => 8,
        Register::R15 => 16,
        _ => 0,
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
