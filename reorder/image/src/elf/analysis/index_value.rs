//! The value that becomes the index of a jump table, seen from an earlier instruction.
//!
//! An index is made from a value by a few layers of "add a constant, then extend". Each layer has a width and a constant;
//! the innermost one belongs to the current location of the value. Arithmetic is modulo the layer's width, as in the
//! processor.

use iced_x86::{ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use super::table_bound::writes_register;

/// The location of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Location {
    /// The lowest bits of a general register; `size` in bytes.
    Register { register: Register, size: u32 },
    /// Memory at base + index · scale + displacement; `size` in bytes.
    Memory { base: Register, index: Register, scale: u32, displacement: u64, size: u32 },
}

impl Location {
    /// The location that operand `number` of the instruction names.
    pub(super) fn of_operand(instruction: &Instruction, number: u32) -> Option<Self> {
        match instruction.op_kind(number) {
            OpKind::Register => {
                let register = instruction.op_register(number);
                // The second byte of a register, such as AH, is not its lowest one.
                let is_high = matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
                (register.is_gpr() && !is_high).then(|| Self::Register {
                    register: register.full_register(),
                    size: register.size() as u32,
                })
            }
            OpKind::Memory if instruction.segment_prefix() == Register::None => Some(Self::Memory {
                base: instruction.memory_base(),
                index: instruction.memory_index(),
                scale: instruction.memory_index_scale(),
                displacement: instruction.memory_displacement64(),
                size: instruction.memory_size().size() as u32,
            }),
            _ => None,
        }
    }

    /// Width in bits.
    pub(super) fn bits(&self) -> u32 {
        match *self {
            Self::Register { size, .. } | Self::Memory { size, .. } => 8 * size,
        }
    }

    /// Whether the lowest bits of both are the same bits.
    pub(super) fn is_same_place(&self, other: &Self) -> bool {
        match (*self, *other) {
            (Self::Register { register: left, .. }, Self::Register { register: right, .. }) => left == right,
            (
                Self::Memory { base, index, scale, displacement, .. },
                Self::Memory {
                    base: other_base,
                    index: other_index,
                    scale: other_scale,
                    displacement: other_displacement,
                    ..
                },
            ) => {
                (base, index, scale, displacement)
                    == (other_base, other_index, other_scale, other_displacement)
            }
            _ => false,
        }
    }

    /// Whether a callee must preserve the value.
    pub(super) fn survives_call(&self) -> bool {
        matches!(self, Self::Register { .. })
    }

    /// Whether the instruction may change the value.
    pub(super) fn is_written_by(
        &self,
        instruction: &Instruction,
        factory: &mut InstructionInfoFactory,
    ) -> bool {
        match *self {
            Self::Register { register, .. } => writes_register(instruction, register, factory),
            Self::Memory { base, index, .. } => {
                let moves = [base, index].into_iter().any(|register| {
                    register.is_gpr() && writes_register(instruction, register.full_register(), factory)
                });
                moves || self.may_be_stored_to(instruction, factory)
            }
        }
    }

    /// A store to another displacement from the same base does not overlap; any other store may.
    fn may_be_stored_to(&self, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
        use iced_x86::OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
        let Self::Memory { base, index, displacement, size, .. } = *self else { return false };
        let info = factory.info(instruction);
        info.used_memory().iter().any(|used| {
            if !matches!(used.access(), Write | CondWrite | ReadWrite | ReadCondWrite) {
                return false;
            }
            let is_beside =
                used.base() == base && used.index() == Register::None && index == Register::None && {
                    let (own, other) = (displacement, used.displacement());
                    let other_size = used.memory_size().size() as u64;
                    other_size > 0
                        && (other.wrapping_sub(own) as i64 >= i64::from(size)
                            || own.wrapping_sub(other) as i64 >= other_size as i64)
                };
            !is_beside
        })
    }
}

/// Unsigned values of `bits` bits from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    first: u64,
    last: u64,
    bits: u32,
}

impl Range {
    /// The values that a comparison with a constant admits on one side of its branch; `None` if these are not one range.
    pub(super) fn admitted(
        comparison: &Instruction,
        condition: ConditionCode,
        is_taken: bool,
    ) -> Option<Self> {
        let bits = Location::of_operand(comparison, 0)?.bits();
        let limit = comparison.try_immediate(1).ok()? & mask(bits);
        let (first, last) = match (condition, is_taken) {
            (ConditionCode::a, false) | (ConditionCode::be, true) => (0, limit),
            (ConditionCode::ae, false) | (ConditionCode::b, true) => (0, limit.checked_sub(1)?),
            (ConditionCode::b, false) | (ConditionCode::ae, true) => (limit, mask(bits)),
            (ConditionCode::be, false) | (ConditionCode::a, true) => {
                (limit.checked_add(1).filter(|first| *first <= mask(bits))?, mask(bits))
            }
            (ConditionCode::e, true) | (ConditionCode::ne, false) => (limit, limit),
            _ => return None,
        };
        Some(Self { first, last, bits })
    }
}

/// An addition and the extension after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Layer {
    /// Width of the sum, in bits.
    bits: u32,
    /// The constant that is added.
    sum: u64,
    /// How the sum is extended to the next layer.
    is_signed: bool,
}

/// Bound on the layers of one index; compilers need two.
const MAX_LAYERS: usize = 4;

/// A value on its way to the index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IndexValue {
    /// Where the value is.
    pub(super) location: Location,
    /// How many of its lowest bits matter.
    pub(super) bits: u32,
    /// From the innermost layer, whose width is `bits`, to the index itself.
    layers: Vec<Layer>,
    /// The range that a comparison gave for fewer bits than matter. It holds for all once the other bits are known to be
    /// zero.
    narrow: Option<Range>,
}

/// The largest index of a table that the code can reach. The order is that of the indices; of equal ones, a stated one comes last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LargestIndex {
    /// The index.
    pub index: u64,
    /// Whether a comparison or a constant states it. A mask or a shift may admit indices that never occur; the compiler may have known that.
    pub is_stated: bool,
}

impl LargestIndex {
    /// The number of entries up to this index.
    pub fn entries(self) -> u64 {
        self.index.saturating_add(1)
    }
}

/// The effect of an instruction on a value, seen backwards.
pub(super) enum Step {
    /// No effect.
    Same,
    /// The largest index is known.
    Known(LargestIndex),
    /// The value was one of these before.
    From(Vec<IndexValue>),
    /// The value cannot be followed.
    Unknown,
}

impl IndexValue {
    /// The index register of a load.
    pub(super) fn in_register(register: Register) -> Self {
        let bits = 8 * register.size() as u32;
        let location =
            Location::Register { register: register.full_register(), size: register.size() as u32 };
        Self { location, bits, layers: vec![Layer { bits, sum: 0, is_signed: false }], narrow: None }
    }

    /// The largest index if the value is in `range`; `None` if the range covers too few bits or wraps around.
    pub(super) fn restrict(&self, range: Range) -> Option<LargestIndex> {
        (range.bits >= self.bits).then_some(())?;
        // A wider comparison bounds the lowest bits only if it leaves no others set.
        (range.last <= mask(self.bits)).then_some(())?;
        let index = self.largest(range.first, range.last)?;
        Some(LargestIndex { index, is_stated: range.last < mask(range.bits) })
    }

    /// Keeps the range that a comparison of fewer bits gave.
    pub(super) fn remember(&mut self, range: Range) {
        if range.bits < self.bits && self.narrow.is_none() {
            self.narrow = Some(range);
        }
    }

    /// The largest index from values `first..=last`.
    fn largest(&self, first: u64, last: u64) -> Option<u64> {
        let (mut first, mut last) = (first, last);
        for layer in &self.layers {
            first = first.wrapping_add(layer.sum) & mask(layer.bits);
            last = last.wrapping_add(layer.sum) & mask(layer.bits);
            let limit = if layer.is_signed { mask(layer.bits) >> 1 } else { mask(layer.bits) };
            if first > last || last > limit {
                return None;
            }
        }
        Some(last)
    }

    /// The value was made from `location` by an extension from its width.
    fn extended_from(&self, location: Location, is_signed: bool) -> Option<Self> {
        let bits = location.bits().min(self.bits);
        if bits == 0 {
            return None;
        }
        let mut value = self.at(location);
        value.bits = bits;
        if bits < self.bits {
            if value.layers.len() >= MAX_LAYERS {
                return None;
            }
            value.layers.insert(0, Layer { bits, sum: 0, is_signed });
        }
        Some(value)
    }

    /// The same value at another location.
    fn at(&self, location: Location) -> Self {
        Self { location, narrow: None, ..self.clone() }
    }

    fn plus(&self, location: Location, sum: u64) -> Self {
        let mut value = self.at(location);
        let layer = &mut value.layers[0];
        layer.sum = layer.sum.wrapping_add(sum) & mask(layer.bits);
        value
    }
}

fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The value before `instruction` that became `value`.
pub(super) fn step_back(
    instruction: &Instruction,
    value: &IndexValue,
    factory: &mut InstructionInfoFactory,
) -> Step {
    if !value.location.is_written_by(instruction, factory) {
        return Step::Same;
    }
    let Some(written) = Location::of_operand(instruction, 0).filter(|to| to.is_same_place(&value.location))
    else {
        let is_widened_accumulator = matches!(instruction.mnemonic(), Mnemonic::Cdqe | Mnemonic::Cwde);
        return if is_widened_accumulator { widened_accumulator(instruction, value) } else { Step::Unknown };
    };
    // Writes of 32 bits clear the upper half; narrower ones keep what was there.
    let is_register = matches!(written, Location::Register { .. });
    let clears = if is_register && written.bits() == 32 { 64 } else { written.bits() };
    if clears < value.bits {
        return Step::Unknown;
    }
    if let Some(narrow) = value.narrow
        && zero_above(instruction, written).is_some_and(|bits| bits <= narrow.bits)
        && let Some(index) = value.largest(narrow.first, narrow.last)
    {
        return Step::Known(LargestIndex { index, is_stated: narrow.last < mask(narrow.bits) });
    }
    let Some(inner) = value.extended_from(resized(written, value), false) else { return Step::Unknown };
    let operand = |number| Location::of_operand(instruction, number);
    let one = |value: Option<IndexValue>| value.map_or(Step::Unknown, |value| Step::From(vec![value]));
    let range = |first: u64, last: u64| {
        let index = inner.largest(first, last);
        index.map_or(Step::Unknown, |index| Step::Known(LargestIndex { index, is_stated: first == last }))
    };
    let constant = instruction.try_immediate(1).ok().map(|value| value & mask(inner.bits));
    match instruction.mnemonic() {
        Mnemonic::Mov => match constant {
            Some(constant) => range(constant, constant),
            None => one(operand(1).and_then(|from| inner.extended_from(from, false))),
        },
        Mnemonic::Movzx => one(operand(1).and_then(|from| inner.extended_from(from, false))),
        Mnemonic::Movsx | Mnemonic::Movsxd => {
            one(operand(1).and_then(|from| inner.extended_from(from, true)))
        }
        Mnemonic::And => constant.map_or(Step::Unknown, |constant| range(0, constant)),
        Mnemonic::Shr => match constant.filter(|&count| count > 0 && count < u64::from(written.bits())) {
            Some(count) => range(0, mask(written.bits()) >> count),
            None => Step::Unknown,
        },
        Mnemonic::Xor if operand(1).is_some_and(|from| from == written) => range(0, 0),
        Mnemonic::Add => constant.map_or(Step::Unknown, |sum| one(Some(inner.plus(written, sum)))),
        Mnemonic::Sub => {
            constant.map_or(Step::Unknown, |sum| one(Some(inner.plus(written, sum.wrapping_neg()))))
        }
        Mnemonic::Inc => one(Some(inner.plus(written, 1))),
        Mnemonic::Dec => one(Some(inner.plus(written, u64::MAX))),
        Mnemonic::Lea
            if instruction.memory_index() == Register::None && instruction.memory_base().is_gpr64() =>
        {
            let base = Location::Register { register: instruction.memory_base(), size: written.bits() / 8 };
            one(Some(inner.plus(base, instruction.memory_displacement64())))
        }
        _ if instruction.condition_code() != ConditionCode::None && instruction.op_count() == 2 => {
            match operand(1).and_then(|from| inner.extended_from(from, false)) {
                Some(moved) => Step::From(vec![inner.at(written), moved]),
                None => Step::Unknown,
            }
        }
        _ => Step::Unknown,
    }
}

/// The written location, as wide as the instruction writes it or as the value.
fn resized(written: Location, value: &IndexValue) -> Location {
    match written {
        Location::Register { register, size } => {
            Location::Register { register, size: size.min(value.bits / 8) }
        }
        memory => memory,
    }
}

/// Number of low bits of the written value that may differ from zero.
fn zero_above(instruction: &Instruction, written: Location) -> Option<u32> {
    match instruction.mnemonic() {
        Mnemonic::Movzx => Some(Location::of_operand(instruction, 1)?.bits()),
        _ if matches!(written, Location::Register { .. }) && written.bits() == 32 => Some(32),
        _ => None,
    }
}

/// `cdqe` and `cwde` extend the accumulator's lower half with its sign.
fn widened_accumulator(instruction: &Instruction, value: &IndexValue) -> Step {
    let size = if instruction.mnemonic() == Mnemonic::Cdqe { 4 } else { 2 };
    let from = Location::Register { register: Register::RAX, size };
    match value.extended_from(from, true) {
        Some(inner) => Step::From(vec![inner]),
        None => Step::Unknown,
    }
}
