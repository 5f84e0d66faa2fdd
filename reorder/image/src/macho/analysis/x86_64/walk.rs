//! Follows control through the instructions of one atom.
//!
//! Takes the atom's bytes and the places where control arrives; gives the reached instructions and the kind of every byte.
//! Guarantee: no two instructions share a byte (except a skipped `lock` prefix) and none shares one with data; otherwise
//! there is an error.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::fields::{Field, Use};
use crate::decode::padding::is_no_operation;
use crate::decode::x86_64::is_call;
use reorder_base::address::Address;

/// The kind of a byte of the atom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Byte {
    /// Not reached so far.
    Unknown,
    /// The first byte of an instruction.
    First,
    /// A later byte of an instruction.
    Inner,
    /// In a range that the linker lists as data.
    Listed,
    /// Part of a jump table.
    Table,
}

/// Why control cannot have been followed correctly; offsets from the atom's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Bytes that no compiler writes as an instruction.
    Invalid(usize),
    /// Control runs into data.
    Data(usize),
}

/// A place to continue from: its offset, and the table entry, if any, that the path started at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) offset: usize,
    pub(super) entry: Option<usize>,
}

/// The code reached so far.
pub(super) struct Walk<'data> {
    bytes: &'data [u8],
    start: Address,
    decoder: Decoder<'data>,
    states: Vec<Byte>,
    /// Places inside the atom whose address is taken.
    pub(super) taken: Vec<usize>,
    /// The addresses in the instructions, in the order in which these were reached.
    pub(super) fields: Vec<Field>,
    /// Control runs past the last byte.
    pub(super) falls_through: bool,
    /// Control runs past the last byte if the call before it comes back.
    pub(super) ends_with_call: bool,
    /// Whether there is a jump through a register.
    pub(super) has_register_jump: bool,
}

/// The `lock` prefix, which a branch may skip on purpose.
const LOCK_PREFIX: u8 = 0xf0;

impl<'data> Walk<'data> {
    /// A walk of `bytes`, which are at `start`, with no byte reached.
    pub(super) fn new(bytes: &'data [u8], start: Address) -> Self {
        Self {
            bytes,
            start,
            decoder: Decoder::with_ip(64, bytes, start.0, DecoderOptions::NONE),
            states: vec![Byte::Unknown; bytes.len()],
            taken: Vec::new(),
            fields: Vec::new(),
            falls_through: false,
            ends_with_call: false,
            has_register_jump: false,
        }
    }

    /// The kind of the byte at `offset`.
    pub(super) fn state(&self, offset: usize) -> Byte {
        self.states[offset]
    }

    /// The kind of each byte.
    pub(super) fn states(&self) -> &[Byte] {
        &self.states
    }

    /// Marks `range`, which lies in the atom, as data.
    pub(super) fn mark(&mut self, range: Range<usize>, state: Byte) {
        self.states[range].fill(state);
    }

    /// The offset of an address inside the atom.
    pub(super) fn offset_of(&self, address: Address) -> Option<usize> {
        let offset = address.0.checked_sub(self.start.0)? as usize;
        (offset < self.bytes.len()).then_some(offset)
    }

    /// Decodes from `arrival` to the first known byte or to where control ends; adds the branches on the path to `pending`.
    pub(super) fn follow(&mut self, arrival: Arrival, pending: &mut Vec<Arrival>) -> Result<(), Trouble> {
        let mut position = arrival.offset;
        // After a call that may never return or a trap, control may not arrive.
        let (mut is_doubtful, mut follows_call) = (false, false);
        let mut instruction = Instruction::default();
        loop {
            match self.states.get(position) {
                None => {
                    self.falls_through |= !is_doubtful;
                    self.ends_with_call |= follows_call;
                    return Ok(());
                }
                Some(Byte::First) => return Ok(()),
                Some(Byte::Inner) if self.follows_lock(position) => return Ok(()),
                Some(Byte::Inner) => return Err(Trouble::Invalid(position)),
                Some(Byte::Listed | Byte::Table) if is_doubtful => return Ok(()),
                Some(Byte::Listed | Byte::Table) => return Err(Trouble::Data(position)),
                Some(Byte::Unknown) => {}
            }
            if is_doubtful && self.bytes[position] == 0 && self.is_zero_padding(position) {
                return Ok(());
            }
            let set = self.decoder.set_position(position);
            set.map_err(|_| Trouble::Invalid(position))?;
            self.decoder.set_ip(self.start.plus(position as u64).0);
            self.decoder.decode_out(&mut instruction);
            if instruction.is_invalid() || is_unlikely(&instruction) {
                return Err(Trouble::Invalid(position));
            }
            self.claim(position, instruction.len())?;
            position += instruction.len();
            if !self.goes_on(&instruction, arrival.entry, pending) {
                return Ok(());
            }
            let is_padding = is_no_operation(&instruction);
            is_doubtful = may_be_last(&instruction) || is_doubtful && is_padding;
            follows_call = is_call(&instruction) || follows_call && is_padding;
        }
    }

    fn claim(&mut self, position: usize, length: usize) -> Result<(), Trouble> {
        let inner = self.states.get(position + 1..position + length).ok_or(Trouble::Invalid(position))?;
        if let Some(distance) = inner.iter().position(|state| *state != Byte::Unknown) {
            let place = position + 1 + distance;
            let is_data = matches!(self.states[place], Byte::Listed | Byte::Table);
            return Err(if is_data { Trouble::Data(place) } else { Trouble::Invalid(position) });
        }
        self.states[position] = Byte::First;
        self.mark(position + 1..position + length, Byte::Inner);
        Ok(())
    }

    /// Records where `instruction` leads inside the atom; false if control never continues after it.
    fn goes_on(
        &mut self,
        instruction: &Instruction,
        entry: Option<usize>,
        pending: &mut Vec<Arrival>,
    ) -> bool {
        if let Some(field) = Field::of(instruction, &self.decoder) {
            if let Some(offset) = self.offset_of(field.target) {
                match field.used {
                    Use::Call | Use::Jump => pending.push(Arrival { offset, entry }),
                    Use::Take => self.taken.push(offset),
                    Use::Memory => {}
                }
            }
            self.fields.push(field);
        }
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch | FlowControl::Return | FlowControl::Exception => false,
            FlowControl::IndirectBranch => {
                self.has_register_jump |= is_register_jump(instruction);
                false
            }
            _ => true,
        }
    }

    /// All instructions that were reached, by address.
    pub(super) fn instructions(&self) -> Vec<Instruction> {
        let mut decoder = Decoder::with_ip(64, self.bytes, self.start.0, DecoderOptions::NONE);
        let firsts = self.states.iter().enumerate().filter(|(_, state)| **state == Byte::First);
        let mut decode = |position: usize| {
            decoder.set_position(position).ok()?;
            decoder.set_ip(self.start.plus(position as u64).0);
            Some(decoder.decode())
        };
        firsts.filter_map(|(position, _)| decode(position)).collect()
    }

    fn follows_lock(&self, position: usize) -> bool {
        let before = position.wrapping_sub(1);
        self.states.get(before) == Some(&Byte::First) && self.bytes[before] == LOCK_PREFIX
    }

    /// Whether only zeros follow, up to the end or to a known byte.
    fn is_zero_padding(&self, position: usize) -> bool {
        let rest = self.bytes[position..].iter().zip(&self.states[position..]);
        rest.take_while(|(_, state)| **state == Byte::Unknown).all(|(byte, _)| *byte == 0)
    }
}

/// Whether the instruction is a jump through a register.
pub(super) fn is_register_jump(instruction: &Instruction) -> bool {
    instruction.code() == Code::Jmp_rm64 && instruction.op0_kind() == OpKind::Register
}

/// A call that never returns is the last instruction of its function; so is a trap.
fn may_be_last(instruction: &Instruction) -> bool {
    is_call(instruction)
        || instruction.flow_control() == FlowControl::Interrupt
        || instruction.mnemonic() == Mnemonic::Hlt
}

/// Instructions that programs cannot use or that current compilers never write: the bytes are more likely data.
fn is_unlikely(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Cli, Clts, In, Insb, Insd, Insw, Invd, Iret, Iretd, Iretq, Lgdt, Lidt, Lldt, Lmsw, Ltr, Out, Outsb,
        Outsd, Outsw, Retf, Rsm, Sti, Sysexit, Sysret, Wbinvd, Wrmsr,
    };
    let is_far_or_short = matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::FarBranch16 | OpKind::FarBranch32
    );
    // An address of four bytes cannot be anywhere in an image that is placed above 4 GiB.
    let is_short_address = instruction.memory_base() == Register::EIP;
    is_far_or_short
        || is_short_address
        || matches!(
            instruction.mnemonic(),
            Cli | Clts
                | In
                | Insb
                | Insd
                | Insw
                | Invd
                | Iret
                | Iretd
                | Iretq
                | Lgdt
                | Lidt
                | Lldt
                | Lmsw
                | Ltr
                | Out
                | Outsb
                | Outsd
                | Outsw
                | Retf
                | Rsm
                | Sti
                | Sysexit
                | Sysret
                | Wbinvd
                | Wrmsr
        )
}
