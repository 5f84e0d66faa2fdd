//! The rows of one frame description entry: for each instruction, how the caller's registers are found.
//!
//! Takes the section and the position of the entry; `gimli` evaluates its instructions, so this reading has nothing in common
//! with the writer of the entries. Source: DWARF 5, section 6.4; DWARF for the Arm 64-bit Architecture.

use gimli::{
    AArch64, BaseAddresses, CallFrameInstruction, CfaRule, CommonInformationEntry, EhFrame, EndianSlice,
    Expression, FrameDescriptionEntry, LittleEndian, Operation, Register, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection, UnwindTable, UnwindTableRow, Vendor,
};

use crate::elf::view::SectionView;
use crate::processor::Processor;

type Slice<'data> = EndianSlice<'data, LittleEndian>;
type Entry<'data> = FrameDescriptionEntry<Slice<'data>>;

/// How the canonical frame address is found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Frame<'data> {
    /// This register plus this.
    Register(u16, i64),
    /// The value of these operations.
    Expression(&'data [u8]),
}

/// How a register of the caller is found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule<'data> {
    /// Without operations.
    Plain(RegisterRule<usize>),
    /// Stored where these operations say.
    Stored(&'data [u8]),
    /// The value of these operations.
    Value(&'data [u8]),
}

/// What holds from one instruction on. Two rows are equal if they say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row<'data> {
    frame: Frame<'data>,
    /// By register; registers that are not listed follow the default of the calling convention.
    registers: Vec<(u16, Rule<'data>)>,
    /// Bytes of arguments on the stack.
    arguments: u64,
    /// A rule uses the address of the instruction, which differs in copies.
    pub(super) is_placed: bool,
}

/// All rows of an entry.
#[derive(Debug)]
pub(super) struct Rows<'data> {
    /// First address of each, ascending, and the row.
    rows: Vec<(u64, Row<'data>)>,
    end: u64,
    /// The table's encoding, if the parent names one: the low half is the form of number.
    pub(super) table_encoding: Option<u8>,
    /// The parent demands augmentation data.
    pub(super) has_augmentation: bool,
    /// Unwinders disagree on the bytes of arguments.
    pub(super) has_ambiguous_arguments: bool,
}

impl<'data> Rows<'data> {
    /// The row for the instruction byte at `address`.
    pub(super) fn at(&self, address: u64) -> Option<&Row<'data>> {
        let after = self.rows.partition_point(|(start, _)| *start <= address);
        let (_, row) = self.rows[..after].last()?;
        (address < self.end).then_some(row)
    }
}

/// Reads entries of one section.
pub(super) struct RowReader<'data> {
    section: EhFrame<Slice<'data>>,
    bases: BaseAddresses,
    processor: Processor,
    context: UnwindContext<usize>,
}

impl<'data> RowReader<'data> {
    /// A reader of `.eh_frame`.
    pub(super) fn of(section: &SectionView<'data>, processor: Processor) -> Self {
        let mut frames = EhFrame::new(section.bytes, LittleEndian);
        frames.set_address_size(8);
        if processor == Processor::Aarch64 {
            frames.set_vendor(Vendor::AArch64);
        }
        let bases = BaseAddresses::default().set_eh_frame(section.address);
        Self { section: frames, bases, processor, context: UnwindContext::new() }
    }

    /// The rows of the entry at `offset`.
    ///
    /// # Errors
    /// Entries that `gimli` does not understand.
    pub(super) fn rows(&mut self, offset: usize) -> gimli::Result<Rows<'data>> {
        let entry: Entry<'data> =
            self.section.fde_from_offset(&self.bases, offset.into(), EhFrame::cie_from_offset)?;
        let parent = entry.cie().clone();
        let mut rows = Vec::new();
        let mut table = UnwindTable::new(&self.section, &self.bases, &mut self.context, &entry)?;
        while let Some(row) = table.next_row()? {
            let start = row.start_address();
            rows.push((start, read_row(&self.section, &parent, self.processor, row)?));
        }
        let has_ambiguous_arguments = self.has_ambiguous_arguments(&entry, &rows)?;
        Ok(Rows {
            rows,
            end: entry.end_address(),
            table_encoding: parent.lsda_encoding().map(|encoding| encoding.0),
            has_augmentation: parent.augmentation().is_some(),
            has_ambiguous_arguments,
        })
    }

    /// Whether it makes a difference if restoring a state restores the bytes of arguments, as `gimli` does, or keeps them, as
    /// GCC's unwinder does.
    fn has_ambiguous_arguments(
        &self,
        entry: &Entry<'data>,
        rows: &[(u64, Row<'data>)],
    ) -> gimli::Result<bool> {
        let factor = entry.cie().code_alignment_factor();
        let mut place = entry.initial_address();
        let mut kept: Vec<(u64, u64)> = Vec::new();
        let mut instructions = entry.instructions(&self.section, &self.bases);
        while let Some(instruction) = instructions.next()? {
            match instruction {
                CallFrameInstruction::ArgsSize { size } => kept.push((place, size)),
                CallFrameInstruction::AdvanceLoc { delta } => {
                    place = place.wrapping_add(u64::from(delta).wrapping_mul(factor));
                }
                CallFrameInstruction::SetLoc { address } => place = address,
                _ => {}
            }
        }
        let kept_at = |place: u64| {
            let after = kept.partition_point(|(start, _)| *start <= place);
            kept[..after].last().map_or(0, |(_, arguments)| *arguments)
        };
        Ok(rows.iter().any(|(start, row)| row.arguments != kept_at(*start)))
    }
}

fn read_row<'data>(
    section: &EhFrame<Slice<'data>>,
    parent: &CommonInformationEntry<Slice<'data>>,
    processor: Processor,
    row: &UnwindTableRow<usize>,
) -> gimli::Result<Row<'data>> {
    let counter = program_counter(processor);
    let mut is_placed = false;
    let mut operations = |expression: &UnwindExpression<usize>| -> gimli::Result<&'data [u8]> {
        let expression: Expression<Slice<'data>> = expression.get(section)?;
        is_placed |= uses_register(expression, parent, counter)?;
        Ok(expression.0.slice())
    };
    let frame = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => Frame::Register(register.0, *offset),
        CfaRule::Expression(expression) => Frame::Expression(operations(expression)?),
    };
    let mut registers = Vec::new();
    for (register, rule) in row.registers() {
        if is_unsigned_again(processor, *register, rule) {
            continue;
        }
        let rule = match rule {
            RegisterRule::Expression(expression) => Rule::Stored(operations(expression)?),
            RegisterRule::ValExpression(expression) => Rule::Value(operations(expression)?),
            plain => Rule::Plain(plain.clone()),
        };
        registers.push((register.0, rule));
    }
    registers.sort_unstable_by_key(|(register, _)| *register);
    is_placed |= matches!(frame, Frame::Register(register, _) if register == counter.0);
    let copies_counter =
        |rule: &Rule<'_>| matches!(rule, Rule::Plain(RegisterRule::Register(from)) if *from == counter);
    is_placed |= registers.iter().any(|(_, rule)| copies_counter(rule));
    Ok(Row { frame, registers, arguments: row.saved_args_size(), is_placed })
}

/// Whether the rule says that return addresses are no longer signed. That is what holds without a rule, too.
fn is_unsigned_again(processor: Processor, register: Register, rule: &RegisterRule<usize>) -> bool {
    processor == Processor::Aarch64
        && register == AArch64::RA_SIGN_STATE
        && matches!(rule, RegisterRule::Constant(0))
}

/// The DWARF number of the program counter.
fn program_counter(processor: Processor) -> Register {
    match processor {
        Processor::X86_64 => gimli::X86_64::RA,
        Processor::Aarch64 => Register(32),
    }
}

/// Whether the operations read `counter`.
fn uses_register(
    expression: Expression<Slice<'_>>,
    parent: &CommonInformationEntry<Slice<'_>>,
    counter: Register,
) -> gimli::Result<bool> {
    let mut operations = expression.operations(parent.encoding());
    while let Some(operation) = operations.next()? {
        let register = match operation {
            Operation::Register { register } | Operation::RegisterOffset { register, .. } => register,
            _ => continue,
        };
        if register == counter {
            return Ok(true);
        }
    }
    Ok(false)
}
