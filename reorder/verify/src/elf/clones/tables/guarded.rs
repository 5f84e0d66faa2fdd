//! Dispatches that run on only where a guard before them bounds the index: what value analysis would prove follows from a few
//! instructions that control enters at the first alone.

use std::ops::Range;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register, RflagsBits,
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
    /// The instructions after the one that forms the table's address, to the jump.
    pub(super) places: Range<Address>,
    /// The jump.
    pub(super) jump: Address,
    /// What it reads while the index is below the limit.
    pub(super) known: KnownJump,
}

impl Sequence {
    /// The dispatch through `table` from the instruction at `seed` on, if the index is below `limit` before it, and a comparison
    /// there changes nothing that runs.
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
        let mut instructions = Decoder::with_ip(64, bytes, seed.0, DecoderOptions::NONE).into_iter();
        let first = instructions.next().ok_or(Fault::Lost(seed))?;
        let mut reading = Reading { base: first.op0_register(), ..Reading::default() };
        if first.mnemonic() != Mnemonic::Lea || table.entry != CopiedTable::DISTANCE {
            return Err(Fault::Use(seed));
        }
        for instruction in instructions.take(MAX_INSTRUCTIONS) {
            let place = Address(instruction.ip());
            if instruction.is_invalid() {
                return Err(Fault::Lost(place));
            }
            reading.pass(&instruction).ok_or(Fault::Use(place))?;
            match instruction.flow_control() {
                FlowControl::Next => {}
                FlowControl::IndirectBranch if instruction.op0_kind() == OpKind::Register => {
                    let index =
                        reading.index.filter(|_| reading.live_flags == 0).ok_or(Fault::Jump(place))?;
                    let places = Address(first.next_ip())..Address(instruction.next_ip());
                    let known = known(image, table, (place, limit))?;
                    return Ok(Self { index, places, jump: place, known });
                }
                _ => return Err(Fault::Jump(place)),
            }
        }
        Err(Fault::Unused)
    }
}

/// What the instructions so far did.
struct Reading {
    /// The register with the address of the table.
    base: Register,
    /// The index of the one load of an entry.
    index: Option<Register>,
    /// Registers that were written, by number.
    written: u32,
    /// Flags that still have their values from before.
    live_flags: u32,
    factory: InstructionInfoFactory,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            base: Register::None,
            index: None,
            written: 0,
            live_flags: COMPARED,
            factory: InstructionInfoFactory::new(),
        }
    }
}

impl Reading {
    /// Takes the next instruction; `None` if it loads a second entry, or one at an index that was not compared, or reads a flag.
    fn pass(&mut self, instruction: &Instruction) -> Option<()> {
        if instruction.rflags_read() & self.live_flags != 0 {
            return None;
        }
        if writes_all_flags(instruction) {
            self.live_flags &= !instruction.rflags_modified();
        }
        let has_memory =
            (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory);
        let has_base = |register: Register| register.full_register() == self.base;
        if has_memory && (has_base(instruction.memory_base()) || has_base(instruction.memory_index())) {
            let index = instruction.memory_index();
            let is_load = instruction.mnemonic() == Mnemonic::Movsxd
                && instruction.memory_base() == self.base
                && index.is_gpr64()
                && index != self.base
                && instruction.memory_index_scale() == 4
                && instruction.memory_displacement64() == 0
                && !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
            let is_compared = self.written >> bit(index)? & 1 == 0;
            if !is_load || !is_compared || self.index.is_some() {
                return None;
            }
            self.index = Some(index);
        }
        let info = self.factory.info(instruction);
        let written = info.used_registers().iter().filter(|used| {
            !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
            )
        });
        for register in written.map(|used| used.register().full_register()) {
            self.written |= bit(register).map_or(0, |number| 1 << number);
        }
        Some(())
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

/// The number of a general register.
fn bit(register: Register) -> Option<u32> {
    register.is_gpr64().then(|| register.number() as u32)
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
    if limit > table.count {
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

    /// The index, if the instructions between `lea …, %rdx` and the jump allow a guard.
    fn index(code: &[&[u8]]) -> Option<Register> {
        let mut reading = Reading { base: Register::RDX, ..Reading::default() };
        for instruction in Decoder::with_ip(64, &code.concat(), 0x1000, DecoderOptions::NONE) {
            reading.pass(&instruction)?;
        }
        reading.index.filter(|_| reading.live_flags == 0)
    }

    #[test]
    fn an_index_that_was_compared_is_used_once_and_no_flag_is() {
        assert_eq!(index(&[&LOAD, &ADD]), Some(Register::RAX));
        assert_eq!(index(&[&[0x4c, 0x89, 0xee], &LOAD, &ADD]), Some(Register::RAX), "mov rsi, r13");
        let refused: [(&str, &[&[u8]]); 8] = [
            ("mov eax, esi", &[&[0x89, 0xf0], &LOAD, &ADD]),
            ("mov al, 1", &[&[0xb0, 1], &LOAD, &ADD]),
            ("cmovb eax, esi", &[&[0x0f, 0x42, 0xc6], &LOAD, &ADD]),
            ("setb sil", &[&LOAD, &[0x40, 0x0f, 0x92, 0xc6], &ADD]),
            ("a second load", &[&LOAD, &LOAD, &ADD]),
            ("another use of the table", &[&LOAD, &[0x8b, 0x02], &ADD]),
            ("no sum", &[&LOAD]),
            // It leaves flags if the distance is zero.
            ("shl rsi, cl", &[&LOAD, &[0x48, 0xd3, 0xe6]]),
        ];
        for (what, code) in refused {
            assert_eq!(index(code), None, "{what}");
        }
    }
}
