//! One line program: read as sequences of rows, divided where code went apart, rewritten.
//! Source: DWARF 5, section 6.2.

use gimli::{LineEncoding, Reader, constants};

use super::pieces::{Piece, Pieces};
use super::sections::Slice;
use reorder_base::address::Address;
use reorder_base::leb128::{write_signed, write_unsigned};

/// What a row says, without its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// `None` where the program does not say it: readers disagree on the number of the first file.
    file: Option<u64>,
    line: u64,
    column: u64,
    isa: u64,
    discriminator: u64,
    pub(super) is_statement: bool,
    pub(super) is_block: bool,
    pub(super) ends_prologue: bool,
    pub(super) begins_epilogue: bool,
}

/// A row; the last of a sequence says only where it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) address: u64,
    pub(super) state: State,
}

/// Rows up to an end, with the bytes that made them.
pub(super) struct Sequence<'data> {
    bytes: &'data [u8],
    pub(super) rows: Vec<Row>,
    pub(super) end: u64,
    /// Positions of addresses in `bytes`.
    pub(super) addresses: Vec<(usize, u64)>,
    /// An instruction without effect on rows, such as one that names a file, which a division would lose.
    kept: Option<&'static str>,
    /// An instruction of unknown meaning, which may state addresses.
    pub(super) unknown: Option<u8>,
}

/// What the program's header says about numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    /// Of opcodes.
    pub encoding: LineEncoding,
    /// First special opcode.
    pub opcode_base: u8,
}

/// Why a program cannot be rewritten.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// It is damaged.
    Damaged(gimli::Error),
    /// It has an instruction that cannot be expressed for moved code, at this address.
    Instruction(String, Address),
}

impl From<gimli::Error> for Obstacle {
    fn from(error: gimli::Error) -> Self {
        Self::Damaged(error)
    }
}

/// Rewrites the `program` in new addresses; `lengths` are those of its standard opcodes.
///
/// # Errors
/// A program that cannot be read, or has instructions for moved code that are not known or that a division would lose.
pub(crate) fn rewrite(
    program: Slice<'_>,
    lengths: Slice<'_>,
    parameters: Parameters,
    pieces: &Pieces,
    output: &mut Vec<u8>,
) -> Result<(), Obstacle> {
    let mut rest = program;
    while !rest.is_empty() {
        let sequence = read_sequence(&mut rest, lengths, parameters)?;
        let first = sequence.rows.first().map_or(sequence.end, |row| row.address);
        let is_fixed = !pieces.is_code(first) || sequence.end < first;
        let piece = pieces.at(first).filter(|piece| first <= sequence.end && sequence.end <= piece.end.0);
        if is_fixed || sequence.addresses.is_empty() || piece.is_some_and(|piece| piece.delta == 0) {
            output.extend_from_slice(sequence.bytes);
        } else if let Some(opcode) = sequence.unknown {
            let what = format!("the unknown instruction {opcode:#x}");
            return Err(Obstacle::Instruction(what, Address(first)));
        } else if let Some(piece) = piece {
            copy_moved(&sequence, piece, output);
        } else if let Some(name) = sequence.kept {
            return Err(Obstacle::Instruction(name.to_owned(), Address(first)));
        } else {
            divide(&sequence, parameters, pieces, output);
        }
    }
    Ok(())
}

fn copy_moved(sequence: &Sequence<'_>, piece: &Piece, output: &mut Vec<u8>) {
    let start = output.len();
    output.extend_from_slice(sequence.bytes);
    for &(at, address) in &sequence.addresses {
        output[start + at..start + at + 8].copy_from_slice(&piece.map(address).to_le_bytes());
    }
}

fn initial(parameters: Parameters) -> State {
    State {
        file: None,
        line: 1,
        column: 0,
        isa: 0,
        discriminator: 0,
        is_statement: parameters.encoding.default_is_stmt,
        is_block: false,
        ends_prologue: false,
        begins_epilogue: false,
    }
}

/// Reads the next sequence of `rest`.
///
/// # Errors
/// A damaged program.
pub(super) fn read_sequence<'data>(
    rest: &mut Slice<'data>,
    lengths: Slice<'_>,
    parameters: Parameters,
) -> gimli::Result<Sequence<'data>> {
    let LineEncoding { minimum_instruction_length, line_base, line_range, .. } = parameters.encoding;
    if line_range == 0 {
        return Err(gimli::Error::LineRangeZero);
    }
    let whole = *rest;
    let (mut state, mut address) = (initial(parameters), 0_u64);
    let mut sequence =
        Sequence { bytes: &[], rows: Vec::new(), end: 0, addresses: Vec::new(), kept: None, unknown: None };
    let advance = |count: u64| count.wrapping_mul(u64::from(minimum_instruction_length));
    let mut is_ended = false;
    while !is_ended && !rest.is_empty() {
        let opcode = rest.read_u8()?;
        if opcode >= parameters.opcode_base {
            let adjusted = opcode - parameters.opcode_base;
            address = address.wrapping_add(advance(u64::from(adjusted / line_range)));
            let step = i64::from(line_base) + i64::from(adjusted % line_range);
            state.line = state.line.wrapping_add_signed(step);
            push_row(&mut sequence, address, &mut state);
            continue;
        }
        match constants::DwLns(opcode) {
            constants::DwLns(0) => {
                let length = rest.read_uleb128()? as usize;
                let mut operands = rest.split(length)?;
                if operands.is_empty() {
                    continue;
                }
                match constants::DwLne(operands.read_u8()?) {
                    constants::DW_LNE_end_sequence => is_ended = true,
                    constants::DW_LNE_set_address => {
                        let at = operands.offset_from(whole);
                        address = operands.read_u64()?;
                        sequence.addresses.push((at, address));
                    }
                    constants::DW_LNE_set_discriminator => state.discriminator = operands.read_uleb128()?,
                    constants::DW_LNE_define_file => sequence.kept = Some("DW_LNE_define_file"),
                    constants::DwLne(opcode) => sequence.unknown = Some(opcode),
                }
            }
            constants::DW_LNS_copy => push_row(&mut sequence, address, &mut state),
            constants::DW_LNS_advance_pc => address = address.wrapping_add(advance(rest.read_uleb128()?)),
            constants::DW_LNS_advance_line => {
                state.line = state.line.wrapping_add_signed(rest.read_sleb128()?);
            }
            constants::DW_LNS_set_file => state.file = Some(rest.read_uleb128()?),
            constants::DW_LNS_set_column => state.column = rest.read_uleb128()?,
            constants::DW_LNS_negate_stmt => state.is_statement = !state.is_statement,
            constants::DW_LNS_set_basic_block => state.is_block = true,
            constants::DW_LNS_const_add_pc => {
                let count = u64::from((255 - parameters.opcode_base) / line_range);
                address = address.wrapping_add(advance(count));
            }
            constants::DW_LNS_fixed_advance_pc => {
                address = address.wrapping_add(u64::from(rest.read_u16()?));
            }
            constants::DW_LNS_set_prologue_end => state.ends_prologue = true,
            constants::DW_LNS_set_epilogue_begin => state.begins_epilogue = true,
            constants::DW_LNS_set_isa => state.isa = rest.read_uleb128()?,
            constants::DwLns(_) => {
                sequence.unknown = Some(opcode);
                let mut lengths = lengths;
                lengths.skip(usize::from(opcode) - 1)?;
                for _ in 0..lengths.read_u8()? {
                    rest.read_uleb128()?;
                }
            }
        }
    }
    sequence.end = address;
    sequence.bytes = whole.slice().get(..rest.offset_from(whole)).unwrap_or_default();
    if !is_ended {
        // Rows without an end have no meaning; their bytes stay.
        sequence.addresses.clear();
    }
    Ok(sequence)
}

fn push_row(sequence: &mut Sequence<'_>, address: u64, state: &mut State) {
    sequence.rows.push(Row { address, state: *state });
    state.discriminator = 0;
    state.is_block = false;
    state.ends_prologue = false;
    state.begins_epilogue = false;
}

/// Writes one sequence for each piece that the old one covers.
fn divide(sequence: &Sequence<'_>, parameters: Parameters, pieces: &Pieces, output: &mut Vec<u8>) {
    let mut writer: Option<(Writer<'_>, Piece)> = None;
    for (at, row) in sequence.rows.iter().enumerate() {
        let next = sequence.rows.get(at + 1).map_or(sequence.end, |next| next.address);
        let mut from = row.address;
        if from == sequence.end {
            // It holds for no address, so it stays with the row before it.
            if let Some((writer, piece)) = writer.as_mut().filter(|(_, piece)| from <= piece.end.0) {
                writer.row(piece.map(from), &row.state);
            }
            continue;
        }
        loop {
            let continues = |(writer, piece): &(Writer<'_>, Piece)| {
                piece.start.0 <= from && from < piece.end.0 && writer.address <= piece.map(from)
            };
            if !writer.as_ref().is_some_and(continues) {
                if let Some((writer, piece)) = writer.take() {
                    writer.end(piece.map(piece.end.0));
                }
                if !pieces.count() {
                    return;
                }
                let Some(piece) = pieces.at(from).copied() else {
                    // The new image has no place for this address, but for later addresses of the row.
                    match pieces.next_start(from).filter(|start| *start < next) {
                        Some(start) => from = start,
                        None => break,
                    }
                    continue;
                };
                writer = Some((Writer::new(parameters, piece.map(from), &mut *output), piece));
            }
            let Some((writer, piece)) = &mut writer else { break };
            writer.row(piece.map(from), &row.state);
            if next <= piece.end.0 {
                break;
            }
            from = piece.end.0;
        }
    }
    if let Some((writer, piece)) = writer {
        writer.end(piece.map(sequence.end.min(piece.end.0)));
    }
}

/// Writes rows as opcodes.
pub(super) struct Writer<'output> {
    parameters: Parameters,
    output: &'output mut Vec<u8>,
    address: u64,
    state: State,
}

impl<'output> Writer<'output> {
    /// Starts a sequence at `address`.
    pub(super) fn new(parameters: Parameters, address: u64, output: &'output mut Vec<u8>) -> Self {
        let mut writer = Self { parameters, output, address, state: initial(parameters) };
        writer.set_address(address);
        writer
    }

    fn set_address(&mut self, address: u64) {
        self.output.extend_from_slice(&[0, 9, constants::DW_LNE_set_address.0]);
        self.output.extend_from_slice(&address.to_le_bytes());
    }

    /// Appends a row.
    pub(super) fn row(&mut self, address: u64, state: &State) {
        let old = self.state;
        if let Some(file) = state.file.filter(|_| state.file != old.file) {
            self.number(constants::DW_LNS_set_file, file);
        }
        if state.column != old.column {
            self.number(constants::DW_LNS_set_column, state.column);
        }
        if state.isa != old.isa {
            self.number(constants::DW_LNS_set_isa, state.isa);
        }
        if state.is_statement != old.is_statement {
            self.output.push(constants::DW_LNS_negate_stmt.0);
        }
        if state.discriminator != 0 {
            let mut operand = Vec::with_capacity(10);
            write_unsigned(&mut operand, state.discriminator);
            self.output.extend_from_slice(&[
                0,
                operand.len() as u8 + 1,
                constants::DW_LNE_set_discriminator.0,
            ]);
            self.output.append(&mut operand);
        }
        let flags = [
            (state.is_block, constants::DW_LNS_set_basic_block),
            (state.ends_prologue, constants::DW_LNS_set_prologue_end),
            (state.begins_epilogue, constants::DW_LNS_set_epilogue_begin),
        ];
        flags.iter().filter(|(is_set, _)| *is_set).for_each(|(_, opcode)| self.output.push(opcode.0));
        self.advance(address, state.line);
        self.address = address;
        self.state = *state;
    }

    /// A special opcode if one fits, else the steps one by one.
    fn advance(&mut self, address: u64, line: u64) {
        let Parameters { encoding, opcode_base } = self.parameters;
        let unit = u64::from(encoding.minimum_instruction_length.max(1));
        let distance = address.wrapping_sub(self.address);
        let count = if distance.is_multiple_of(unit) { distance / unit } else { u64::MAX };
        let step = line.wrapping_sub(self.state.line) as i64;
        let special = step
            .checked_sub(i64::from(encoding.line_base))
            .filter(|within| (0..i64::from(encoding.line_range)).contains(within))
            .and_then(|within| {
                let opcode = count.checked_mul(u64::from(encoding.line_range))?.checked_add(within as u64)?;
                u8::try_from(opcode.checked_add(u64::from(opcode_base))?).ok()
            });
        if let Some(special) = special.filter(|_| count != 0 || step != 0) {
            return self.output.push(special);
        }
        if step != 0 {
            self.output.push(constants::DW_LNS_advance_line.0);
            write_signed(self.output, step);
        }
        self.move_to(address);
        self.output.push(constants::DW_LNS_copy.0);
    }

    fn move_to(&mut self, address: u64) {
        let unit = u64::from(self.parameters.encoding.minimum_instruction_length.max(1));
        let distance = address.wrapping_sub(self.address);
        if distance.is_multiple_of(unit) && address >= self.address {
            if distance > 0 {
                self.number(constants::DW_LNS_advance_pc, distance / unit);
            }
        } else {
            self.set_address(address);
        }
    }

    fn number(&mut self, opcode: constants::DwLns, value: u64) {
        self.output.push(opcode.0);
        write_unsigned(self.output, value);
    }

    /// Ends the sequence before `address`.
    pub(super) fn end(mut self, address: u64) {
        self.move_to(address);
        self.output.extend_from_slice(&[0, 1, constants::DW_LNE_end_sequence.0]);
    }
}
