//! Whether the code of an atom branches to a register that may hold a sum: of two registers, or of one and a word of memory.
//!
//! Each register has one mark, which follows control from the sum until the register gets another value. Values that pass
//! through memory lose it.

use std::collections::BTreeSet;

use iced_x86::{
    ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

/// One bit for each general register that may hold a sum.
type Marks = u16;

/// Registers that a callee need not preserve lose their marks: all but `RBX`, `RSP`, `RBP`, `R12` to `R15`.
/// Source: System V Application Binary Interface, AMD64 supplement, section 3.2.1.
const PRESERVED: Marks = 0b1111_0000_0011_1000;

/// Whether any of `instructions`, which ascend by address, goes to a register that may hold a sum. What it does at a jump
/// that `is_explained` does not count.
pub(super) fn goes_to_sum(instructions: &[Instruction], is_explained: impl Fn(u64) -> bool) -> bool {
    let destination = |instruction: &Instruction| match instruction.flow_control() {
        FlowControl::IndirectCall => register_mark(instruction),
        FlowControl::IndirectBranch if !is_explained(instruction.ip()) => register_mark(instruction),
        _ => 0,
    };
    if instructions.iter().all(|instruction| destination(instruction) == 0)
        || !instructions.iter().any(is_sum)
    {
        return false;
    }
    let mut flow = Flow::new(instructions);
    while let Some(index) = flow.pending.pop_first() {
        if destination(&instructions[index]) & flow.marks[index] != 0 {
            return true;
        }
        flow.pass(index);
    }
    false
}

struct Flow<'a> {
    instructions: &'a [Instruction],
    /// Before each instruction.
    marks: Vec<Marks>,
    /// Instructions without a known predecessor: landing pads and targets of tables.
    arrivals: Vec<usize>,
    /// The marks that may arrive there.
    elsewhere: Marks,
    /// Instructions to visit. None is visited again more often than there are registers.
    pending: BTreeSet<usize>,
    factory: InstructionInfoFactory,
}

impl<'a> Flow<'a> {
    fn new(instructions: &'a [Instruction]) -> Self {
        let mut flow = Self {
            instructions,
            marks: vec![0; instructions.len()],
            arrivals: Vec::new(),
            elsewhere: 0,
            pending: (0..instructions.len()).collect(),
            factory: InstructionInfoFactory::new(),
        };
        let led_to: BTreeSet<usize> = (0..instructions.len())
            .flat_map(|index| [flow.next(index), flow.branch(index)])
            .flatten()
            .collect();
        // Control that enters the first instruction from another function brings no marks.
        flow.arrivals = (1..instructions.len()).filter(|index| !led_to.contains(index)).collect();
        flow
    }

    /// The instruction after this one, if control goes on there.
    fn next(&self, index: usize) -> Option<usize> {
        let instruction = self.instructions[index];
        let next = self.instructions.get(index + 1).filter(|next| next.ip() == instruction.next_ip());
        let ends = matches!(
            instruction.flow_control(),
            FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
                | FlowControl::Return
                | FlowControl::Exception
        );
        next.filter(|_| !ends).map(|_| index + 1)
    }

    /// Where it branches to.
    fn branch(&self, index: usize) -> Option<usize> {
        let target = self.instructions[index].near_branch_target();
        (target != 0).then(|| self.instructions.binary_search_by_key(&target, Instruction::ip).ok())?
    }

    /// Passes the marks after the instruction to all instructions that may follow it.
    fn pass(&mut self, index: usize) {
        let (instruction, before) = (self.instructions[index], self.marks[index]);
        let after = self.after(&instruction, before);
        if let Some(next) = self.next(index) {
            self.merge(next, after);
        }
        if let Some(target) = self.branch(index) {
            self.merge(target, before);
        }
        let handed = match instruction.flow_control() {
            FlowControl::Call | FlowControl::IndirectCall => before & PRESERVED,
            FlowControl::IndirectBranch => before,
            _ => 0,
        };
        if handed & !self.elsewhere != 0 {
            self.elsewhere |= handed;
            for arrival in self.arrivals.clone() {
                self.merge(arrival, self.elsewhere);
            }
        }
    }

    fn merge(&mut self, index: usize, marks: Marks) {
        if marks & !self.marks[index] != 0 {
            self.marks[index] |= marks;
            self.pending.insert(index);
        }
    }

    fn after(&mut self, instruction: &Instruction, before: Marks) -> Marks {
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return before & PRESERVED;
        }
        let source =
            if instruction.op1_kind() == OpKind::Register { mark(instruction.op1_register()) } else { 0 };
        let is_marked = |mark: Marks| before & mark != 0;
        let carried = match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Xchg | Mnemonic::Xadd => is_marked(source),
            // One register and a number.
            Mnemonic::Lea => is_marked(mark(instruction.memory_base())),
            // `CMOVcc`.
            _ if instruction.condition_code() != ConditionCode::None => is_marked(source),
            _ => false,
        };
        let written = self.factory.info(instruction).used_registers().iter();
        let written = written.filter(|used| used.access() == OpAccess::Write);
        let lost = written.fold(0, |lost, used| lost | mark(used.register()));
        // `XCHG` copies both ways: its second register may get the value of the first.
        let swapped = match instruction.mnemonic() {
            Mnemonic::Xchg | Mnemonic::Xadd if is_marked(register_mark(instruction)) => source,
            _ => 0,
        };
        let gained = if carried || is_sum(instruction) { register_mark(instruction) } else { 0 };
        before & !lost | gained | swapped
    }
}

/// The mark of the first operand, if it is a register.
fn register_mark(instruction: &Instruction) -> Marks {
    if instruction.op0_kind() == OpKind::Register { mark(instruction.op0_register()) } else { 0 }
}

fn mark(register: Register) -> Marks {
    let full = register.full_register();
    if full.is_gpr64() { 1 << full.number() } else { 0 }
}

/// Whether the first operand, a register of eight bytes, gets a sum.
fn is_sum(instruction: &Instruction) -> bool {
    let adds = match instruction.mnemonic() {
        Mnemonic::Add | Mnemonic::Sub | Mnemonic::Xadd => {
            matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory)
        }
        Mnemonic::Lea => {
            instruction.memory_base() != Register::None && instruction.memory_index() != Register::None
        }
        _ => false,
    };
    adds && instruction.op0_kind() == OpKind::Register && instruction.op0_register().is_gpr64()
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    use super::goes_to_sum;

    fn goes(code: &[&[u8]]) -> bool {
        let code = code.concat();
        let instructions: Vec<_> = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE).iter().collect();
        goes_to_sum(&instructions, |_| false)
    }

    const ADD_RAX_RCX: &[u8] = &[0x48, 0x01, 0xc8];
    const LEA_RAX_RAX_RCX: &[u8] = &[0x48, 0x8d, 0x04, 0x08];
    const LEA_RAX_RAX_8: &[u8] = &[0x48, 0x8d, 0x40, 0x08];
    const MOV_RBX_RAX: &[u8] = &[0x48, 0x89, 0xc3];
    const MOV_RAX_FROM_RDI: &[u8] = &[0x48, 0x8b, 0x07];
    const CMOVNE_RBX_RAX: &[u8] = &[0x48, 0x0f, 0x45, 0xd8];
    const XCHG_RBX_RAX: &[u8] = &[0x48, 0x87, 0xc3];
    const CALL_RAX: &[u8] = &[0xff, 0xd0];
    const CALL_RBX: &[u8] = &[0xff, 0xd3];
    const JMP_RAX: &[u8] = &[0xff, 0xe0];
    const CALL_NEXT: &[u8] = &[0xe8, 0, 0x10, 0, 0];

    #[test]
    fn sums_are_followed_to_calls() {
        for sum in [ADD_RAX_RCX, LEA_RAX_RAX_RCX] {
            assert!(goes(&[sum, CALL_RAX]) && goes(&[sum, JMP_RAX]));
            assert!(goes(&[sum, LEA_RAX_RAX_8, CALL_RAX]));
            for copy in [MOV_RBX_RAX, CMOVNE_RBX_RAX, XCHG_RBX_RAX] {
                assert!(goes(&[sum, copy, CALL_NEXT, CALL_RBX]), "{copy:x?}");
            }
        }
    }

    #[test]
    fn another_value_is_no_sum() {
        assert!(!goes(&[ADD_RAX_RCX, MOV_RAX_FROM_RDI, CALL_RAX]));
        assert!(!goes(&[ADD_RAX_RCX, CALL_RBX]));
        assert!(!goes(&[ADD_RAX_RCX, CALL_NEXT, CALL_RAX]), "a call does not preserve it");
        assert!(!goes(&[MOV_RAX_FROM_RDI, CALL_RAX, ADD_RAX_RCX]));
    }

    #[test]
    fn sums_follow_branches_loops_and_jumps_to_elsewhere() {
        // Over a load, back to the call, and from a jump through another register to code without a known predecessor.
        let over: &[u8] = &[0x75, 3];
        assert!(goes(&[ADD_RAX_RCX, over, MOV_RAX_FROM_RDI, CALL_RAX]));
        let back: &[u8] = &[0x75, 0xf9];
        assert!(goes(&[CALL_RAX, ADD_RAX_RCX, back]));
        let jump_rsi: &[u8] = &[0xff, 0xe6];
        assert!(goes(&[ADD_RAX_RCX, jump_rsi, CALL_RAX]));
    }
}
