//! Instructions of AArch64 functions.
//! Source: Arm Architecture Reference Manual, DDI 0487, chapter C4 (encoding index).

use std::ops::Range;

use super::Unclear;
use super::outline::Sketch;
use crate::decode::aarch64::{Operation, Register, WORD, decode};
use reorder_base::address::Address;

/// The fields of `B`, `BL`; of `B.cond`, `CBZ`, `LDR` of a literal; of `TBZ`; of `ADR`, `ADRP`; and of additions, loads and
/// stores with an immediate of twelve bits.
const BRANCH_FIELD: u32 = 0x03ff_ffff;
const CONDITION_FIELD: u32 = 0x00ff_ffe0;
const TEST_FIELD: u32 = 0x0007_ffe0;
const ADDRESS_FIELD: u32 = 0x60ff_ffe0;
const IMMEDIATE_FIELD: u32 = 0x003f_fc00;

/// `SVC`, and the bits that tell it.
const SYSTEM_CALL: u32 = 0xd400_0001;
const EXCEPTION_MASK: u32 = 0xffe0_001f;

/// All instructions of `code`, the function at `range`.
pub(super) fn sketch(code: &[u8], range: &Range<Address>) -> Result<Sketch, Unclear> {
    let (words, rest) = code.as_chunks::<4>();
    if !rest.is_empty() || !range.start.0.is_multiple_of(WORD) {
        return Err(Unclear::NotDecodable);
    }
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let place = |index: usize| range.start.plus(index as u64 * WORD);
    let operations: Vec<Operation> =
        words.iter().enumerate().map(|(index, word)| decode(*word, place(index))).collect();
    let has_computed_jump =
        operations.iter().any(|operation| matches!(operation, Operation::BranchRegister(_)));
    // Registers that hold a page somewhere: what is added to them may differ from build to build.
    let mut holds_page = [false; 32];
    for operation in &operations {
        if let Operation::Adrp(Register(register), _) = operation {
            holds_page[usize::from(*register)] = true;
        }
    }
    let mut pass = Pass { range, sketch: Sketch::default(), masked: words, has_computed_jump };
    let mut is_leader = false;
    let mut is_stopped = false;
    for (index, operation) in operations.iter().enumerate() {
        let offset = index as u32 * WORD as u32;
        pass.sketch.instructions.push(offset);
        if is_stopped && *operation == Operation::Nop {
            continue;
        }
        if std::mem::take(&mut is_leader) || std::mem::take(&mut is_stopped) {
            pass.sketch.leaders.push(offset);
        }
        let word = pass.masked[index];
        let is_test = word & 0x7e00_0000 == 0x3600_0000;
        match operation {
            Operation::Invalid => return Err(Unclear::NotDecodable),
            Operation::Branch(target) => pass.jump(index, *target, BRANCH_FIELD),
            Operation::ConditionalBranch(target) => {
                pass.jump(index, *target, if is_test { TEST_FIELD } else { CONDITION_FIELD });
                is_leader = true;
            }
            Operation::Call(target) => {
                pass.refer(index, *target, BRANCH_FIELD, false)?;
                if !range.contains(target) {
                    pass.sketch.called.push((offset, *target));
                }
            }
            Operation::Adr(_, target) => pass.refer(index, *target, ADDRESS_FIELD, true)?,
            Operation::Adrp(..) => pass.masked[index] &= !ADDRESS_FIELD,
            Operation::LoadLiteral(_, target) if range.contains(target) => return Err(Unclear::OwnData),
            Operation::LoadLiteral(..) => pass.masked[index] &= !CONDITION_FIELD,
            Operation::AddImmediate(_, Register(base), _) | Operation::Access(Register(base), ..)
                if holds_page[usize::from(*base)] =>
            {
                pass.masked[index] &= !IMMEDIATE_FIELD;
            }
            _ => {}
        }
        let ends = matches!(
            operation,
            Operation::Branch(_) | Operation::BranchRegister(_) | Operation::Return | Operation::Trap
        );
        let end = offset + WORD as u32;
        if ends {
            is_stopped = true;
            pass.sketch.stops.push((end, pass.own_target(*operation)));
        }
        if is_leader {
            pass.sketch.branches.push(end);
        }
        let is_call = matches!(operation, Operation::Call(_) | Operation::CallRegister(_) | Operation::Trap);
        if is_call || word & EXCEPTION_MASK == SYSTEM_CALL {
            pass.sketch.calls.push(offset);
        }
    }
    let mut sketch = pass.sketch;
    sketch.masked = pass.masked.iter().flat_map(|word| word.to_le_bytes()).collect();
    Ok(sketch)
}

struct Pass<'run> {
    range: &'run Range<Address>,
    sketch: Sketch,
    masked: Vec<u32>,
    has_computed_jump: bool,
}

impl Pass<'_> {
    fn own_target(&self, operation: Operation) -> Option<u32> {
        let Operation::Branch(target) = operation else { return None };
        self.range.contains(&target).then(|| target.distance_from(self.range.start) as u32)
    }

    fn jump(&mut self, index: usize, target: Address, field: u32) {
        if self.range.contains(&target) {
            self.sketch.leaders.push(target.distance_from(self.range.start) as u32);
        } else {
            self.masked[index] &= !field;
            self.sketch.leaving.push(target);
            self.sketch.called.push(((index * 4) as u32, target));
        }
    }

    /// A call, or an address that is formed: tables of distances count from a place inside the function.
    fn refer(&mut self, index: usize, target: Address, field: u32, is_address: bool) -> Result<(), Unclear> {
        if !self.range.contains(&target) {
            self.masked[index] &= !field;
            return Ok(());
        }
        if is_address && self.has_computed_jump {
            self.sketch.leaders.push(target.distance_from(self.range.start) as u32);
            return Ok(());
        }
        if target == self.range.start { Ok(()) } else { Err(Unclear::OwnAddress) }
    }
}
