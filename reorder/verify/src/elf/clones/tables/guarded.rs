//! Dispatches whose index a guard bounds. They need no value analysis: control enters only at the first instruction, which forms
//! the address of the table, and reaches the jump a few instructions later without a branch.

use std::ops::Range;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic,
    OpAccess, OpKind, Register, RflagsBits,
};

use super::walk::Fault;
use crate::elf::clones::copies::bytes_from;
use crate::elf::clones::record::CopiedTable;
use crate::elf::tables::KnownJump;
use crate::elf::view::ElfView;
use reorder_base::address::Address;

/// Instructions from the one that forms the address to the jump; compilers put few others between them.
const MAX_INSTRUCTIONS: usize = 24;

/// Flags that a comparison writes.
const COMPARED: u32 =
    RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::CF | RflagsBits::PF;

/// A dispatch after a guard.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    /// The register with the index.
    pub(super) index: Register,
    /// Numbers of the registers for the address of the table and for the entry; both are overwritten before anything reads them.
    pub(super) overwritten: [usize; 2],
    /// All bytes from the second one of the instruction that forms the table's address to the jump.
    places: Range<Address>,
    /// The instruction that forms the address, and those after it.
    instructions: Vec<Address>,
    /// The jump.
    pub(super) jump: Address,
    /// What it reads while the index is below the limit.
    pub(super) known: KnownJump,
}

impl Sequence {
    /// The dispatch through `table` that begins at `seed`, given that the index is below `limit` there, if a comparison before
    /// `seed` does not change what the code does.
    ///
    /// # Errors
    /// What shows that the index or the flags may be used otherwise.
    pub(super) fn of(
        image: &ElfView<'_>,
        table: &CopiedTable,
        (seed, limit): (Address, u64),
    ) -> Result<Self, Fault> {
        let code = image.section_at(seed.0).filter(|section| section.is_code());
        let bytes = code.and_then(|section| bytes_from(section, seed.0)).ok_or(Fault::Lost(seed))?;
        let mut decoded = Decoder::with_ip(64, bytes, seed.0, DecoderOptions::NONE).into_iter();
        let first = decoded.next().ok_or(Fault::Lost(seed))?;
        let is_whole = first.mnemonic() == Mnemonic::Lea && first.op0_register().is_gpr64();
        if !is_whole || table.entry != CopiedTable::DISTANCE {
            return Err(Fault::Use(seed));
        }
        let mut reading = Reading::of(first.op0_register());
        let mut instructions = vec![seed];
        for instruction in decoded.take(MAX_INSTRUCTIONS) {
            let place = Address(instruction.ip());
            instructions.push(place);
            if instruction.is_invalid() {
                return Err(Fault::Lost(place));
            }
            match instruction.flow_control() {
                FlowControl::Next => reading.pass(&instruction).ok_or(Fault::Use(place))?,
                FlowControl::IndirectBranch if instruction.op0_kind() == OpKind::Register => {
                    let (index, entry) =
                        reading.finished(instruction.op0_register()).ok_or(Fault::Jump(place))?;
                    return Ok(Self {
                        index,
                        overwritten: [reading.base, entry].map(Register::number),
                        places: seed.plus(1)..Address(instruction.next_ip()),
                        instructions,
                        jump: place,
                        known: known(image, table, (place, limit))?,
                    });
                }
                _ => return Err(Fault::Jump(place)),
            }
        }
        Err(Fault::Unused)
    }

    /// Whether control that goes from `place` to `target` enters the sequence without passing its first instruction.
    pub(super) fn is_entered(&self, place: Address, target: Address) -> bool {
        // The jump may lead back to the load, with another index.
        let runs_on = place != self.jump && self.instructions.binary_search(&place).is_ok();
        self.places.contains(&target) && !runs_on
    }
}

/// What the instructions so far did: one chain from the address of the table to the sum that is jumped to.
struct Reading {
    /// The register with the address of the table.
    base: Register,
    /// The register with the index of the one load of an entry, and the one with what was loaded.
    loaded: Option<(Register, Register)>,
    /// The register with the sum of both.
    sum: Option<Register>,
    /// Registers that were written, by number.
    written: u32,
    /// Flags that still have their values from before.
    live_flags: u32,
    factory: InstructionInfoFactory,
}

impl Reading {
    fn of(base: Register) -> Self {
        let factory = InstructionInfoFactory::new();
        Self { base, loaded: None, sum: None, written: 0, live_flags: COMPARED, factory }
    }

    /// The registers with the index and with the entry, if the chain ends with a jump through `register`.
    fn finished(&self, register: Register) -> Option<(Register, Register)> {
        self.loaded.filter(|_| self.sum == Some(register) && self.live_flags == 0)
    }

    /// Takes the next instruction; `None` if it is no part of the chain and uses a register of it, if it reads a flag, or if the index
    /// of the load is not what was compared.
    fn pass(&mut self, instruction: &Instruction) -> Option<()> {
        if instruction.rflags_read() & self.live_flags != 0 {
            return None;
        }
        if writes_all_flags(instruction) {
            self.live_flags &= !instruction.rflags_modified();
        }
        let (is_link, written_before) = (self.is_load(instruction) || self.is_sum(instruction), self.written);
        let chain = [Some(self.base), self.loaded.map(|(_, entry)| entry), self.sum];
        let info = self.factory.info(instruction);
        for used in info.used_registers() {
            let register = used.register().full_register();
            if !is_link && chain.contains(&Some(register)) {
                return None;
            }
            if !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
            ) {
                self.written |= bit(register);
            }
        }
        match (is_link, self.loaded) {
            (true, None) => {
                let (index, entry) = (instruction.memory_index(), instruction.op0_register());
                let is_compared = written_before & bit(index) == 0;
                self.loaded = Some((index, entry)).filter(|_| is_compared);
                self.loaded.map(|_| ())
            }
            (true, Some(_)) => {
                self.sum = Some(instruction.op0_register());
                Some(())
            }
            (false, _) => Some(()),
        }
    }

    /// Whether an instruction loads the entry.
    fn is_load(&self, instruction: &Instruction) -> bool {
        self.loaded.is_none()
            && instruction.mnemonic() == Mnemonic::Movsxd
            && instruction.op0_register().is_gpr64()
            && instruction.op0_register() != self.base
            && instruction.op1_kind() == OpKind::Memory
            && instruction.memory_base() == self.base
            && instruction.memory_index().is_gpr64()
            && instruction.memory_index() != self.base
            && instruction.memory_index_scale() == 4
            && instruction.memory_displacement64() == 0
            && instruction.memory_size() == MemorySize::Int32
            && !matches!(instruction.segment_prefix(), Register::FS | Register::GS)
    }

    /// Whether an instruction adds the entry and the address.
    fn is_sum(&self, instruction: &Instruction) -> bool {
        let Some((_, entry)) = self.loaded.filter(|_| self.sum.is_none()) else { return false };
        let operands = (instruction.op0_register(), instruction.op1_register());
        instruction.mnemonic() == Mnemonic::Add
            && instruction.op1_kind() == OpKind::Register
            && (operands == (entry, self.base) || operands == (self.base, entry))
    }
}

/// Whether an instruction always writes the flags that it may write; shifts by nothing leave them.
fn writes_all_flags(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::Cmp
            | Mnemonic::Test
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
    )
}

/// A general register as a bit; none for others.
fn bit(register: Register) -> u32 {
    if register.is_gpr64() { 1 << register.number() } else { 0 }
}

/// The entries of `table` below `limit`, which all lead to code.
fn known(
    image: &ElfView<'_>,
    table: &CopiedTable,
    (jump, limit): (Address, u64),
) -> Result<KnownJump, Fault> {
    let target = |number: u64| {
        let place = table.original.0.checked_add(number.checked_mul(CopiedTable::DISTANCE)?)?;
        let distance = image.mapped_offset(place, CopiedTable::DISTANCE)?;
        let distance = crate::bytes::u32_at(image.bytes, usize::try_from(distance.0).ok()?)?;
        let target = table.original.0.wrapping_add(i64::from(distance.cast_signed()) as u64);
        image.code_at(target, target).map(|_| Address(target))
    };
    /// More entries than any switch has; each copied table is followed from each place that forms its address.
    const MAX_ENTRIES: u64 = 1 << 16;
    if limit > table.count.min(MAX_ENTRIES) {
        return Err(Fault::Bound(jump, limit));
    }
    let targets = (0..limit).map(|number| target(number).ok_or(Fault::Bound(jump, number)));
    let last = limit.checked_sub(1).ok_or(Fault::Unused)?;
    Ok(KnownJump {
        table: table.original,
        entry: table.entry,
        last: Some(last),
        targets: targets.collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `movsxd rcx, [rdx + rax * 4]`.
    const LOAD: [u8; 4] = [0x48, 0x63, 0x0c, 0x82];
    /// `add rcx, rdx`.
    const ADD: [u8; 3] = [0x48, 0x01, 0xd1];

    /// The index, if the instructions between `lea …, %rdx` and `jmp *%rcx` allow a guard.
    fn index(code: &[&[u8]]) -> Option<Register> {
        let mut reading = Reading::of(Register::RDX);
        for instruction in Decoder::with_ip(64, &code.concat(), 0x1000, DecoderOptions::NONE) {
            reading.pass(&instruction)?;
        }
        reading.finished(Register::RCX).map(|(index, _)| index)
    }

    /// The jump may lead back to the load, before which nothing has compared the index then.
    #[test]
    fn only_the_first_instruction_is_a_way_in() {
        let known = KnownJump { table: Address(0), entry: 4, last: None, targets: Vec::new() };
        let sequence = Sequence {
            index: Register::RAX,
            overwritten: [2, 1],
            places: Address(0x1001)..Address(0x1010),
            instructions: [0x1000, 0x1007, 0x100b, 0x100e].map(Address).to_vec(),
            jump: Address(0x100e),
            known,
        };
        let is_entered = |place, target| sequence.is_entered(Address(place), Address(target));
        assert!(!is_entered(0x1000, 0x1007) && !is_entered(0x1007, 0x100b) && !is_entered(0x2000, 0x1000));
        assert!(is_entered(0x100e, 0x1007) && is_entered(0x2000, 0x100b) && is_entered(0x2000, 0x1003));
    }

    #[test]
    fn an_index_that_was_compared_is_used_once_and_no_flag_is() {
        assert_eq!(index(&[&LOAD, &ADD]), Some(Register::RAX));
        assert_eq!(index(&[&[0x4c, 0x89, 0xee], &LOAD, &ADD]), Some(Register::RAX), "mov rsi, r13");
        let refused: [(&str, &[&[u8]]); 11] = [
            ("mov eax, esi", &[&[0x89, 0xf0], &LOAD, &ADD]),
            ("mov al, 1", &[&[0xb0, 1], &LOAD, &ADD]),
            ("cmovb eax, esi", &[&[0x0f, 0x42, 0xc6], &LOAD, &ADD]),
            ("setb sil", &[&LOAD, &[0x40, 0x0f, 0x92, 0xc6], &ADD]),
            ("a second load", &[&LOAD, &LOAD, &ADD]),
            ("another use of the table: mov eax, [rdx]", &[&LOAD, &[0x8b, 0x02], &ADD]),
            ("another use of the table: mov rsi, rdx", &[&[0x48, 0x89, 0xd6], &LOAD, &ADD]),
            ("another sum: add rcx, rsi", &[&LOAD, &[0x48, 0x01, 0xf1]]),
            ("another sum: mov rcx, rbx", &[&LOAD, &ADD, &[0x48, 0x89, 0xd9]]),
            ("no sum", &[&LOAD]),
            // It leaves flags if the distance is zero.
            ("shl rsi, cl", &[&LOAD, &[0x48, 0xd3, 0xe6]]),
        ];
        for (what, code) in refused {
            assert_eq!(index(code), None, "{what}");
        }
    }
}
