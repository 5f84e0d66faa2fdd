//! One pass over a block of x86-64 code.
//!
//! Takes the block's bytes and address; gives the address fields that leave the block, what the last
//! instruction does, and which data the block addresses. Marks every instruction boundary.
//! Source: AMD64 Architecture Programmer's Manual, volume 3, "Instruction Encoding".

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::boundaries::Boundaries;
use crate::decode::padding::is_no_operation;
use crate::decode::sums::{CallOffset, CallOffsets, CodeAddresses, RecentSums};
use crate::elf::code::{CodeOffset, CodeSpace, Region};
use reorder_base::address::Address;

/// Registers that a callee may overwrite (System V ABI AMD64, section 3.2.1).
pub const CALL_CLOBBERED: [Register; 9] = [
    Register::RAX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// Whether a callee must give the general register back as it was; the stack pointer and RBP, which hold the frame, do not count.
/// Source: System V ABI AMD64, section 3.2.1.
pub fn is_preserved(register: Register) -> bool {
    let full = register.full_register();
    full.is_gpr64() && !CALL_CLOBBERED.contains(&full) && !matches!(full, Register::RSP | Register::RBP)
}

/// Whether the instruction calls.
pub(crate) fn is_call(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// How a field's instruction uses the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// `jmp`, `jcc`, `xbegin` with four bytes of displacement.
    Jump,
    /// `call` with four bytes of displacement.
    Call,
    /// A branch with one byte of displacement: its short reach ties the two places together.
    ShortJump,
    /// `lea`: the address itself is the result.
    AddressOf,
    /// A load, store, or jump or call through memory.
    Memory,
}

/// An address stored relative to the end of its instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The displacement's first byte.
    pub place: CodeOffset,
    /// Bytes from there to the end of the instruction.
    pub to_end: u8,
    /// How the address is used.
    pub kind: FieldKind,
}

impl Field {
    /// Width of the displacement in bytes.
    pub fn width(&self) -> usize {
        if self.kind == FieldKind::ShortJump { 1 } else { 4 }
    }

    /// The address that the field holds in the input image.
    pub fn target(&self, code: &CodeSpace<'_>) -> Address {
        let place = code.address(self.place);
        let bytes = code.bytes(place..place.plus(self.width() as u64));
        let displacement = match bytes {
            [byte] => i64::from(*byte as i8),
            _ => bytes.try_into().map_or(0, |four| i64::from(i32::from_le_bytes(four))),
        };
        place.plus(u64::from(self.to_end)).plus(displacement as u64)
    }
}

/// What one pass over a block found.
#[derive(Clone, Debug, Default)]
pub struct DecodedBlock {
    /// Fields whose target lies outside the block's bytes; the byte after its end counts as outside.
    pub fields: Vec<Field>,
    /// A branch leads to the byte after the block, where compilers send control that is unreachable.
    pub refers_to_own_end: bool,
    /// Non-executable addresses that `lea` forms: possible tables.
    pub table_candidates: Vec<Address>,
    /// Non-executable addresses that any operand forms: a table ends at these.
    pub data_references: Vec<Address>,
    /// Displacements and immediates that, in an image at a fixed address, could be code addresses.
    pub absolute_candidates: Vec<Address>,
    /// A jump through a register: its target must be explained.
    pub has_register_jump: bool,
    /// 64-bit constants that it loads, as code of the large model does.
    pub wide_constants: Vec<u64>,
    /// Places in the block whose address it takes, or learns by calling them.
    pub own_places: Vec<Address>,
    /// Learns one of them by a call, so that distances from there are ordinary constants.
    pub calls_own_place: bool,
    /// Takes the address of any place in the block.
    pub takes_own_address: bool,
    /// Calls a sum that was made just before.
    pub has_computed_call: bool,
    /// Jumps to such a sum, as jump tables do.
    pub has_computed_jump: bool,
    /// Adds a value to an address of code, or subtracts one.
    pub adds_to_code: bool,
    /// Constants that are added to pointers right before these are called or jumped to.
    pub call_offsets: Vec<CallOffset>,
    /// Reads or writes its own bytes as data.
    pub has_inner_data: bool,
    /// Control runs past the last instruction, unless that is a call.
    pub falls_through: bool,
    /// The target of the last instruction, a call: control runs on if it returns.
    pub ends_with_call: Option<Address>,
    /// Some instruction returns.
    pub returns: bool,
    /// Address of the first bytes that are not an instruction; everything else is then meaningless.
    pub invalid_at: Option<Address>,
}

/// Decodes `range`, whose bytes lie in one executable section, from `first` on.
pub(crate) fn decode_block(
    code: &CodeSpace<'_>,
    range: Range<Address>,
    first: Address,
    boundaries: &Boundaries,
) -> DecodedBlock {
    let bytes = code.bytes(first..range.end);
    let mut decoder = Decoder::with_ip(64, bytes, first.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let (mut sums, mut addresses) = (RecentSums::default(), CodeAddresses::default());
    let mut offsets = CallOffsets::default();
    let mut block = DecodedBlock { falls_through: true, ..DecodedBlock::default() };
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let address = Address(instruction.ip());
        if instruction.is_invalid() {
            block.invalid_at = Some(address);
            return block;
        }
        boundaries.mark(code.offset(address));
        if is_no_operation(&instruction) || instruction.mnemonic() == Mnemonic::Int3 {
            continue;
        }
        block.falls_through = !ends_control(&instruction);
        block.returns |= instruction.flow_control() == FlowControl::Return;
        block.ends_with_call = (instruction.flow_control() == FlowControl::Call
            && instruction.op0_kind() == OpKind::NearBranch64)
            .then(|| Address(instruction.near_branch_target()));
        if instruction.code() == Code::Mov_r64_imm64 {
            block.wide_constants.push(instruction.immediate64());
        }
        if sums.is_target(&instruction) {
            match instruction.flow_control() {
                FlowControl::IndirectCall => block.has_computed_call = true,
                FlowControl::IndirectBranch => block.has_computed_jump = true,
                _ => {}
            }
        }
        sums.follow(code, &instruction);
        block.adds_to_code |= addresses.follow(code, &instruction);
        for offset in offsets.of_target(code, &range, &instruction) {
            if !block.call_offsets.contains(&offset) {
                block.call_offsets.push(offset);
            }
        }
        offsets.follow(&instruction);
        if instruction.code() == Code::Jmp_rm64 && instruction.op0_kind() == OpKind::Register {
            block.has_register_jump = true;
        }
        if !collect_field(code, &range, &decoder, &instruction, &mut block) {
            block.invalid_at = Some(address);
            return block;
        }
    }
    block
}

/// If the last instruction is a call, its target decides.
fn ends_control(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch
        | FlowControl::IndirectBranch
        | FlowControl::Return
        | FlowControl::Call
        | FlowControl::IndirectCall
        | FlowControl::Exception => true,
        FlowControl::Interrupt => instruction.mnemonic() == Mnemonic::Int3,
        _ => instruction.mnemonic() == Mnemonic::Hlt,
    }
}

/// Records the instruction's address field. False when the instruction cannot be one that a compiler wrote.
fn collect_field(
    code: &CodeSpace<'_>,
    range: &Range<Address>,
    decoder: &Decoder<'_>,
    instruction: &Instruction,
    block: &mut DecodedBlock,
) -> bool {
    let (kind, target, offset, width);
    match instruction.op0_kind() {
        OpKind::NearBranch64 => {
            let constants = decoder.get_constant_offsets(instruction);
            (target, offset, width) = (
                Address(instruction.near_branch_target()),
                constants.immediate_offset(),
                constants.immediate_size(),
            );
            kind = match (width, instruction.flow_control()) {
                (1, _) => FieldKind::ShortJump,
                (_, FlowControl::Call) => FieldKind::Call,
                _ => FieldKind::Jump,
            };
        }
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::FarBranch16 | OpKind::FarBranch32 => {
            return false;
        }
        _ if instruction.is_ip_rel_memory_operand() => {
            if instruction.memory_base() != Register::RIP {
                return false;
            }
            let constants = decoder.get_constant_offsets(instruction);
            (target, offset, width) = (
                Address(instruction.ip_rel_memory_address()),
                constants.displacement_offset(),
                constants.displacement_size(),
            );
            kind = if instruction.mnemonic() == Mnemonic::Lea {
                FieldKind::AddressOf
            } else {
                FieldKind::Memory
            };
            if code.arena_of(target).is_none() {
                block.data_references.push(target);
                if kind == FieldKind::AddressOf {
                    block.table_candidates.push(target);
                }
            }
        }
        _ => {
            collect_absolute_candidates(code, decoder, instruction, block);
            return true;
        }
    }
    collect_absolute_candidates(code, decoder, instruction, block);
    if width != 4 && kind != FieldKind::ShortJump {
        return false;
    }
    if range.contains(&target) {
        block.has_inner_data |= kind == FieldKind::Memory;
        block.takes_own_address |= kind == FieldKind::AddressOf;
        if kind == FieldKind::AddressOf {
            block.own_places.push(target);
        } else if kind == FieldKind::Call && keeps_return_address(code, target) {
            block.own_places.push(Address(instruction.next_ip()));
            block.calls_own_place = true;
        }
        return true;
    }
    let place = Address(instruction.ip()).plus(offset as u64);
    let to_end = (instruction.len() - offset) as u8;
    block.fields.push(Field { place: code.offset(place), to_end, kind });
    true
}

/// Whether the target of a call reads the return address: `pop` or a load of the top of the stack.
fn keeps_return_address(code: &CodeSpace<'_>, target: Address) -> bool {
    let Some(arena) = code.arena_of(target) else { return false };
    let bytes = code.bytes(target..arena.end);
    let instruction = Decoder::with_ip(64, bytes, target.0, DecoderOptions::NONE).decode();
    let is_load = instruction.mnemonic() == Mnemonic::Mov
        && instruction.op1_kind() == OpKind::Memory
        && instruction.memory_base() == Register::RSP
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0;
    instruction.mnemonic() == Mnemonic::Pop || is_load
}

/// Operands of the instructions in `range` that could be addresses of code: (value, instruction). After bytes that
/// are not an instruction, all positions are tried.
pub(crate) fn absolute_constants(code: &CodeSpace<'_>, range: Range<Address>) -> Vec<(Address, Address)> {
    let bytes = code.bytes(range.clone());
    let mut decoder = Decoder::with_ip(64, bytes, range.start.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut found = Vec::new();
    let mut block = DecodedBlock::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let address = Address(instruction.ip());
        if instruction.is_invalid() {
            let rest = address.distance_from(range.start) as usize;
            let words = bytes[rest..].windows(4).enumerate().filter_map(|(index, word)| {
                let value = Address(u64::from(u32::from_le_bytes(word.try_into().ok()?)));
                code.may_be_code(value).then(|| (value, address.plus(index as u64)))
            });
            found.extend(words);
            break;
        }
        collect_absolute_candidates(code, &decoder, &instruction, &mut block);
        found.extend(block.absolute_candidates.drain(..).map(|value| (value, address)));
    }
    found
}

/// The same of the code in `range`, read from each of `starts` up to an instruction that was read from an earlier one. Bytes that are
/// no instruction are passed over.
pub(crate) fn constants_from(
    code: &CodeSpace<'_>,
    range: Range<Address>,
    starts: impl Iterator<Item = Address>,
) -> Vec<(Address, Address)> {
    let mut block = DecodedBlock::default();
    let mut found = Vec::new();
    read_from(code, range, starts, |decoder, instruction| {
        collect_absolute_candidates(code, decoder, instruction, &mut block);
        let address = Address(instruction.ip());
        found.extend(block.absolute_candidates.drain(..).map(|value| (value, address)));
    });
    found
}

/// An operand that an instruction keeps as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptNumber {
    /// First byte of the instruction.
    pub instruction: Address,
    /// First byte of the operand.
    pub place: Address,
    /// Its bytes: four or eight.
    pub width: u8,
    /// The number.
    pub value: Address,
}

/// Operands that could be addresses of code, of instructions that move, push or compare 64 bits. Code is read as by
/// [`constants_from`].
pub(crate) fn kept_numbers_from(
    code: &CodeSpace<'_>,
    range: Range<Address>,
    starts: impl Iterator<Item = Address>,
) -> Vec<KeptNumber> {
    let mut found = Vec::new();
    read_from(code, range, starts, |decoder, instruction| {
        let Some(value) = kept_number(instruction).filter(|value| code.may_be_code(*value)) else { return };
        let constants = decoder.get_constant_offsets(instruction);
        let start = Address(instruction.ip());
        let place = start.plus(constants.immediate_offset() as u64);
        found.push(KeptNumber { instruction: start, place, width: constants.immediate_size() as u8, value });
    });
    found
}

/// What code says of tables of addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressTables {
    /// The tables through which it jumps at an index, by one instruction or by a load and a jump.
    pub bases: Vec<Address>,
    /// Addresses of data that instructions state.
    pub stated: Vec<Address>,
}

/// The tables of addresses of the code in `range`, which is read as by [`constants_from`].
pub(crate) fn address_tables(
    code: &CodeSpace<'_>,
    range: Range<Address>,
    starts: impl Iterator<Item = Address>,
) -> AddressTables {
    let mut found = AddressTables::default();
    // The address after a load of an entry, its register, and the table.
    let mut loaded: Option<(u64, Register, Address)> = None;
    read_from(code, range, starts, |decoder, instruction| {
        let is_entry = |operand| {
            instruction.op_kind(operand) == OpKind::Memory
                && instruction.memory_base() == Register::None
                && instruction.memory_index() != Register::None
                && instruction.memory_index_scale() == 8
        };
        let (register, base) = (instruction.op0_register(), Address(instruction.memory_displacement64()));
        let before = loaded.take();
        match instruction.mnemonic() {
            Mnemonic::Jmp if is_entry(0) => found.bases.push(base),
            Mnemonic::Jmp => found.bases.extend(
                before
                    .filter(|before| (before.0, before.1) == (instruction.ip(), register))
                    .map(|before| before.2),
            ),
            Mnemonic::Mov if is_entry(1) => loaded = Some((instruction.next_ip(), register, base)),
            _ => {}
        }
        let relative = instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address());
        let numbers = operands_of(decoder, instruction).chain(relative).map(Address);
        found.stated.extend(numbers.filter(|number| code.region(*number) == Region::Data));
    });
    found
}

/// The number of 64 bits that an instruction moves, pushes or compares with.
fn kept_number(instruction: &Instruction) -> Option<Address> {
    let last = instruction.op_count().checked_sub(1)?;
    let is_kept = match (instruction.mnemonic(), instruction.op_kind(last)) {
        (Mnemonic::Mov, OpKind::Immediate64 | OpKind::Immediate32to64)
        | (Mnemonic::Push | Mnemonic::Cmp, OpKind::Immediate32to64) => true,
        // The upper half of the register becomes zero.
        (Mnemonic::Mov, OpKind::Immediate32) => instruction.op0_register().is_gpr32(),
        _ => false,
    };
    is_kept.then(|| Address(instruction.immediate(last)))
}

/// Reads the code in `range` from each of `starts` up to an instruction that was read from an earlier one.
fn read_from(
    code: &CodeSpace<'_>,
    range: Range<Address>,
    starts: impl Iterator<Item = Address>,
    mut each: impl FnMut(&Decoder<'_>, &Instruction),
) {
    let bytes = code.bytes(range.clone());
    // Instructions have at most 15 bytes, so no byte is decoded more often than that.
    let mut was_read = vec![false; bytes.len()];
    let mut instruction = Instruction::default();
    for start in starts {
        let position = start.distance_from(range.start) as usize;
        let mut decoder = Decoder::with_ip(64, &bytes[position..], start.0, DecoderOptions::NONE);
        while decoder.can_decode() {
            let at = position + decoder.position();
            if std::mem::replace(&mut was_read[at], true) {
                break;
            }
            decoder.decode_out(&mut instruction);
            each(&decoder, &instruction);
        }
    }
}

/// Addresses from the start to the end of `range` that instructions in it form: these are no fields, because they move with it.
pub(crate) fn own_addresses(code: &CodeSpace<'_>, range: Range<Address>) -> Vec<Address> {
    let decoder = Decoder::with_ip(64, code.bytes(range.clone()), range.start.0, DecoderOptions::NONE);
    let formed = decoder.into_iter().filter(|instruction| instruction.mnemonic() == Mnemonic::Lea);
    let formed = formed.filter(Instruction::is_ip_rel_memory_operand);
    let targets = formed.map(|instruction| Address(instruction.ip_rel_memory_address()));
    targets.filter(|target| (range.start..=range.end).contains(target)).collect()
}

/// Immediate numbers of four or more bytes of the instructions in `range`, sign-extended.
pub(crate) fn wide_operands(code: &CodeSpace<'_>, range: Range<Address>) -> Vec<u64> {
    let mut decoder = Decoder::with_ip(64, code.bytes(range.clone()), range.start.0, DecoderOptions::NONE);
    let mut found = Vec::new();
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        found.extend(operands_of(&decoder, &instruction));
    }
    found
}

fn operands_of<'run>(
    decoder: &Decoder<'_>,
    instruction: &'run Instruction,
) -> impl Iterator<Item = u64> + 'run {
    let constants = decoder.get_constant_offsets(instruction);
    let has_displacement = constants.displacement_size() >= 4 && !instruction.is_ip_rel_memory_operand();
    let has_immediate = constants.immediate_size() >= 4 && instruction.op0_kind() != OpKind::NearBranch64;
    let displacement = has_displacement.then(|| instruction.memory_displacement64());
    let operands = if has_immediate { instruction.op_count() } else { 0 };
    displacement
        .into_iter()
        .chain((0..operands).filter_map(|operand| instruction.try_immediate(operand).ok()))
}

fn collect_absolute_candidates(
    code: &CodeSpace<'_>,
    decoder: &Decoder<'_>,
    instruction: &Instruction,
    block: &mut DecodedBlock,
) {
    if !code.is_fixed_address {
        return;
    }
    operands_of(decoder, instruction).for_each(|value| push_absolute_candidate(code, Address(value), block));
}

/// At a fixed address a constant may also be the base of a table of distances to code.
fn push_absolute_candidate(code: &CodeSpace<'_>, value: Address, block: &mut DecodedBlock) {
    if code.may_be_code(value) {
        block.absolute_candidates.push(value);
    }
    if code.region(value) == Region::Data {
        block.data_references.push(value);
    }
}
