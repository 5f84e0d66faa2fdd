//! The instructions of every function, old against new and back.
//!
//! Forward, each old function is decoded; all bytes but the address fields must recur in the new function, and
//! each field must stand for the mapped target. Those bytes alone decide how an instruction decodes, so the new
//! instructions have the same lengths. In reverse, each *new* function is decoded for itself, its fields are
//! encoded for the old place from the targets they stand for now, and the result must be the old bytes: a map that
//! is wrong in the same way in both images would still break here.
//!
//! Functions are checked in parallel; results come in address order. Nothing is kept per instruction.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
use rayon::prelude::*;

use super::absolute_fields::AbsoluteField;
use super::elf_view::ElfView;
use super::fields::{AddressField, Addressing, addressing, read_field, write_field};
use super::gaps::padding_length;
use super::pair::ImagePair;
use super::recover::Move;
use super::report::{Check, Difference};
use crate::address::{Address, NewAddress};

/// A data address that a dispatch may use as the base of a table of four-byte distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableUse {
    /// Address of the table's first word.
    pub(super) base: u64,
    /// Position of the dispatching function in the moves.
    pub(super) owner: u32,
}

/// What the functions of an image showed.
#[derive(Clone, Debug, Default)]
pub(super) struct CodeOutcome {
    /// Instructions decoded in the old image.
    pub(super) instructions: usize,
    /// Address fields compared.
    pub(super) fields: usize,
    /// Functions that do not decode; they are the same at the same place.
    pub(super) opaque: usize,
    /// The first difference of each function that has one.
    pub(super) differences: Vec<Difference>,
    /// Addresses outside of code that instructions refer to.
    pub(super) references: Vec<u64>,
    /// Tables that functions with a computed jump refer to.
    pub(super) tables: Vec<TableUse>,
}

impl CodeOutcome {
    fn append(&mut self, mut other: Self) {
        self.instructions += other.instructions;
        self.fields += other.fields;
        self.opaque += other.opaque;
        self.differences.append(&mut other.differences);
        self.references.append(&mut other.references);
        self.tables.append(&mut other.tables);
    }
}

/// Compares all functions of `old` with those of `new`.
pub(super) fn compare_functions(images: ImagePair<'_>) -> CodeOutcome {
    /// Functions per work item: enough to hide the cost of an item, few enough to balance large functions.
    const CHUNK: usize = 64;
    let comparison = Comparison { images };
    let chunks: Vec<CodeOutcome> = images
        .moves
        .as_slice()
        .par_chunks(CHUNK)
        .enumerate()
        .map(|(chunk, ranges)| {
            let mut outcome = CodeOutcome::default();
            let mut scratch = Vec::new();
            for index in chunk * CHUNK..chunk * CHUNK + ranges.len() {
                let difference = comparison.function(index, &mut outcome, &mut scratch);
                outcome.differences.extend(difference);
            }
            outcome.references.sort_unstable();
            outcome.references.dedup();
            outcome
        })
        .collect();
    let mut all = CodeOutcome::default();
    for chunk in chunks {
        all.append(chunk);
    }
    all.references.par_sort_unstable();
    all.references.dedup();
    all
}

/// Compares functions of two images.
struct Comparison<'a> {
    images: ImagePair<'a>,
}

/// One function in both images.
struct FunctionPair<'a> {
    images: ImagePair<'a>,
    range: &'a Move,
    old_bytes: &'a [u8],
    new_bytes: &'a [u8],
    new_offset: u64,
}

/// What decoding one function showed.
#[derive(Default)]
struct FunctionShape {
    is_opaque: bool,
    /// Control reaches the end of the range.
    runs_on: bool,
    has_computed_jump: bool,
    /// Addresses that the function takes, outside of its own range.
    taken: Vec<u64>,
}

impl Comparison<'_> {
    /// Checks one function in both directions; gives its first difference.
    fn function(&self, index: usize, outcome: &mut CodeOutcome, scratch: &mut Vec<u8>) -> Option<Difference> {
        let range = &self.images.moves.as_slice()[index];
        let bytes = |image: &ElfView<'_>, start: u64| {
            let section = image.code_at(start, start.wrapping_add(range.size))?;
            let offset = section.offset + (start - section.address);
            Some((offset, offset.checked_add(range.size)?))
        };
        let found = bytes(self.images.old, range.old_start.0).zip(bytes(self.images.new, range.new_start.0));
        let Some(((old_from, old_to), (new_from, new_to))) = found else {
            return Some(Difference::new(
                Check::Functions,
                None,
                range.to_string(),
                "code in the file",
                "none",
            ));
        };
        // Both ranges lie inside section contents, which were checked against the file.
        let pair = FunctionPair {
            images: self.images,
            range,
            old_bytes: &self.images.old.bytes[old_from as usize..old_to as usize],
            new_bytes: &self.images.new.bytes[new_from as usize..new_to as usize],
            new_offset: new_from,
        };
        let mut shape = FunctionShape::default();
        if let Err(difference) = pair.forward(outcome, &mut shape) {
            return Some(difference);
        }
        if shape.is_opaque {
            outcome.opaque += 1;
            return None;
        }
        if shape.has_computed_jump {
            let bases = shape.taken.iter().map(|&base| TableUse { base, owner: index as u32 });
            outcome.tables.extend(bases);
        }
        pair.reverse(scratch).err().or_else(|| if shape.runs_on { self.successor(index) } else { None })
    }

    /// A function that control runs out of must keep what follows, with the padding between.
    fn successor(&self, index: usize) -> Option<Difference> {
        let range = &self.images.moves.as_slice()[index];
        let next = self.images.moves.as_slice().get(index + 1);
        let section = self.images.old.code_at(range.old_start.0, range.old_end().0)?;
        let next = next.filter(|next| section.holds(next.old_start.0, next.old_end().0));
        let follower = next.map_or(section.end(), |next| next.old_start.0);
        let between_size = follower - range.old_end().0;
        let between = |image: &ElfView<'_>, start: u64| {
            let offset = image.offset_of(start)?;
            super::bytes::range(image.bytes, offset, between_size).map(<[u8]>::to_vec)
        };
        let old_between = between(self.images.old, range.old_end().0).unwrap_or_default();
        const INT3: u8 = 0xcc;
        if old_between.first() == Some(&INT3) {
            return None;
        }
        let is_kept = match next {
            Some(next) if padding_length(&old_between, range.old_end().0) == old_between.len() => {
                next.delta() == range.delta()
                    && (between_size == 0
                        || between(self.images.new, range.new_end().0).as_ref() == Some(&old_between))
            }
            // Control runs into code that belongs to no function and never moves.
            _ => !range.is_moved(),
        };
        (!is_kept).then(|| {
            Difference::new(
                Check::Functions,
                None,
                format!("the end of {range}"),
                "the code that control runs into, behind it",
                next.map_or_else(|| "a function that moved away".to_owned(), |next| format!("{next}")),
            )
        })
    }
}

impl FunctionPair<'_> {
    /// Old against new: same bytes outside of address fields, mapped targets inside.
    fn forward(&self, outcome: &mut CodeOutcome, shape: &mut FunctionShape) -> Result<(), Difference> {
        let mut decoder = Decoder::with_ip(64, self.old_bytes, self.range.old_start.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        let mut compared_to = 0usize;
        while decoder.can_decode() {
            let start = decoder.position();
            decoder.decode_out(&mut instruction);
            let addressing = if instruction.is_invalid() {
                Addressing::Unsupported
            } else {
                addressing(&decoder, &instruction)
            };
            outcome.instructions += 1;
            if addressing != Addressing::Unsupported {
                self.check_operands(&decoder, &instruction, start)?;
            }
            if instruction.mnemonic() != Mnemonic::Nop {
                shape.runs_on = falls_through(instruction.flow_control(), instruction.code());
            }
            match addressing {
                Addressing::None => {
                    shape.has_computed_jump |= instruction.flow_control() == FlowControl::IndirectBranch
                        && instruction.op0_kind() == OpKind::Register;
                }
                Addressing::Field(field) => {
                    let at = start + field.offset;
                    self.same_bytes(compared_to, at)?;
                    self.check_field(&field, at, decoder.position())?;
                    compared_to = at + field.width;
                    outcome.fields += 1;
                    if !field.is_branch && self.is_outside(field.target) {
                        outcome.references.push(field.target);
                        if instruction.mnemonic() == Mnemonic::Lea {
                            shape.taken.push(field.target);
                        }
                    }
                }
                Addressing::Unsupported => {
                    shape.is_opaque = true;
                    self.same_bytes(compared_to, self.old_bytes.len())?;
                    return if self.range.is_moved() {
                        let place = format!("{} in a function that moved", Address(instruction.ip()));
                        Err(self.difference(
                            Check::Functions,
                            start,
                            place,
                            "instructions that can be read",
                            "none",
                        ))
                    } else {
                        Ok(())
                    };
                }
            }
        }
        self.same_bytes(compared_to, self.old_bytes.len())
    }

    /// New against old: fields encoded back for the old place must give the old bytes.
    fn reverse(&self, scratch: &mut Vec<u8>) -> Result<(), Difference> {
        scratch.clear();
        scratch.extend_from_slice(self.new_bytes);
        let mut decoder = Decoder::with_ip(64, self.new_bytes, self.range.new_start.0, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let start = decoder.position();
            decoder.decode_out(&mut instruction);
            let field = match addressing(&decoder, &instruction) {
                Addressing::Field(field) if !instruction.is_invalid() => field,
                Addressing::None if !instruction.is_invalid() => continue,
                _ => {
                    let place = NewAddress(instruction.ip()).to_string();
                    return Err(self.difference(
                        Check::Reverse,
                        start,
                        place,
                        "a readable instruction",
                        "none",
                    ));
                }
            };
            let at = start + field.offset;
            let old_next = self.range.old_start.plus(decoder.position() as u64);
            let target = self.images.moves.unmap(NewAddress(field.target));
            let distance = target.0.wrapping_sub(old_next.0);
            let places = &mut scratch[at..at + field.width];
            let mut is_written = write_field(places, field.width, distance);
            // Two readings of one address: the one that the old image used is right.
            let own_end =
                (field.is_branch && field.target == self.range.new_end().0).then(|| self.range.old_end().0);
            let is_original = is_written && places == &self.old_bytes[at..at + field.width];
            if !is_original && let Some(origin) = own_end.or_else(|| self.images.prefix_origin(field.target))
            {
                is_written = write_field(places, field.width, origin.wrapping_sub(old_next.0));
            }
            if !is_written {
                let place = format!("the field of {}", NewAddress(instruction.ip()));
                return Err(self.difference(
                    Check::Reverse,
                    at,
                    place,
                    "a distance that fits",
                    target.to_string(),
                ));
            }
        }
        for field in self.absolute_fields() {
            let at = (field.place - self.range.old_start.0) as usize;
            let bytes = scratch.get_mut(at..at + field.width);
            if let Some(bytes) = bytes.filter(|bytes| is_followed(self.images, field, bytes)) {
                bytes.copy_from_slice(&field.value.to_le_bytes()[..field.width]);
            }
        }
        match first_difference(scratch, self.old_bytes) {
            None => Ok(()),
            Some(at) => {
                let place = format!("the byte for {} moved back", self.range.old_start.plus(at as u64));
                Err(self.difference(
                    Check::Reverse,
                    at,
                    place,
                    format!("{:#04x}", self.old_bytes[at]),
                    format!("{:#04x}", scratch[at]),
                ))
            }
        }
    }

    /// The stored addresses in the function.
    fn absolute_fields(&self) -> &[AbsoluteField] {
        self.images.absolute.within(self.range.old_start.0, self.range.old_end().0)
    }

    /// A stored address that had to follow must be an operand of its instruction, or it is none.
    fn check_operands(
        &self,
        decoder: &Decoder<'_>,
        instruction: &Instruction,
        start: usize,
    ) -> Result<(), Difference> {
        let fields = self.images.absolute.within(instruction.ip(), instruction.next_ip());
        for field in fields.iter().filter(|field| self.images.mapped(field.value) != field.value) {
            let constants = decoder.get_constant_offsets(instruction);
            let operands = [
                (constants.displacement_offset(), constants.displacement_size()),
                (constants.immediate_offset(), constants.immediate_size()),
            ];
            let at = (field.place - instruction.ip()) as usize;
            if !operands.contains(&(at, field.width)) {
                let place = format!("the address stored at {}", Address(field.place));
                return Err(self.difference(
                    Check::AbsoluteAddresses,
                    start + at,
                    place,
                    "an operand",
                    "none",
                ));
            }
        }
        Ok(())
    }

    /// The same bytes but for stored addresses, which follow the map.
    fn same_bytes(&self, from: usize, to: usize) -> Result<(), Difference> {
        let start = self.range.old_start.0;
        let mut position = from;
        for field in self.images.absolute.within(start + from as u64, start + to as u64) {
            let at = (field.place - start) as usize;
            let Some(bytes) = self.new_bytes.get(at..at + field.width).filter(|_| at >= position) else {
                continue;
            };
            self.identical_bytes(position, at)?;
            if !is_followed(self.images, field, bytes) {
                let place = format!("the address stored at {}", Address(field.place));
                let expected = format!("{:#x}", self.images.mapped(field.value));
                let found = format!("{:#x}", field.read(bytes).unwrap_or_default());
                return Err(self.difference(Check::AbsoluteAddresses, at, place, expected, found));
            }
            position = at + field.width;
        }
        self.identical_bytes(position, to.max(position))
    }

    fn identical_bytes(&self, from: usize, to: usize) -> Result<(), Difference> {
        let (old, new) = (&self.old_bytes[from..to], &self.new_bytes[from..to]);
        match first_difference(old, new) {
            None => Ok(()),
            Some(within) => {
                let at = from + within;
                let place = format!("code byte of {}", self.range.new_start.plus(at as u64));
                Err(self.difference(
                    Check::Functions,
                    at,
                    place,
                    format!("{:#04x}", old[within]),
                    format!("{:#04x}", new[within]),
                ))
            }
        }
    }

    /// `at` is the field's position in the function, `end` that of the instruction's end.
    fn check_field(&self, field: &AddressField, at: usize, end: usize) -> Result<(), Difference> {
        let distance = read_field(&self.new_bytes[at..at + field.width], field.width).unwrap_or_default();
        let found = self.range.new_start.plus(end as u64).plus(distance);
        let expected = if self.is_outside(field.target) {
            self.images.moves.map(Address(field.target))
        } else {
            NewAddress(field.target.wrapping_add(self.range.delta()))
        };
        // A branch to the own end is either into what follows or never taken: both readings are sound.
        let is_own_end =
            field.is_branch && field.target == self.range.old_end().0 && found == self.range.new_end();
        let is_followed = found == expected || is_own_end || self.images.leads_to(field.target, found.0);
        if is_followed {
            return Ok(());
        }
        let place =
            format!("target of {} (was {})", self.range.new_start.plus(at as u64), Address(field.target));
        Err(self.difference(Check::Functions, at, place, expected.to_string(), found.to_string()))
    }

    fn is_outside(&self, target: u64) -> bool {
        !(self.range.old_start.0..self.range.old_end().0).contains(&target)
    }

    fn difference(
        &self,
        check: Check,
        at: usize,
        place: String,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Difference {
        Difference::new(check, Some(self.new_offset + at as u64), place, expected, found)
    }
}

/// Whether control goes on behind an instruction that ends a function.
fn falls_through(flow: FlowControl, code: Code) -> bool {
    match flow {
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
            code != Code::Hlt
        }
        FlowControl::Interrupt => !matches!(code, Code::Int3 | Code::Int1),
        _ => false,
    }
}

fn is_followed(images: ImagePair<'_>, field: &AbsoluteField, bytes: &[u8]) -> bool {
    field.read(bytes).is_some_and(|found| images.holds_followed(field, found))
}

fn first_difference(left: &[u8], right: &[u8]) -> Option<usize> {
    if left == right {
        return None;
    }
    left.iter().zip(right).position(|(left, right)| left != right)
}
