//! Call frame instructions: what unwinding does at each place of a function, and the same for a part of it.
//!
//! A row says how to find the frame and the registers of the caller. Copies of fragments have the rows of their originals, so
//! the instructions are carried out and the differences between rows are written again.
//! Source: DWARF 5, section 6.4; Linux Standard Base 5.0, "Exception Frames", for what GNU tools added.

use std::collections::BTreeMap;

use super::reader::Reader;
use reorder_base::leb128::{write_signed, write_unsigned};

/// How the frame's address is computed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Frame<'data> {
    Register { register: u64, offset: Offset },
    Expression(&'data [u8]),
}

/// A distance as it is stored: plain, or in units of the common entry's factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offset {
    Plain(u64),
    Factored(i64),
}

/// How a register of the caller is found.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule<'data> {
    Undefined,
    SameValue,
    /// Stored so far from the frame's address, in units of the common entry's factor.
    Stored(i64),
    Value(i64),
    Register(u64),
    StoredAt(&'data [u8]),
    ValueOf(&'data [u8]),
}

/// What unwinding does at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row<'data> {
    frame: Option<Frame<'data>>,
    rules: BTreeMap<u64, Rule<'data>>,
    /// Bytes of arguments on the stack.
    arguments: u64,
    /// AArch64: the return address is signed.
    is_signed: bool,
}

/// Rows of one function.
pub(super) struct Rows<'data> {
    /// After the instructions of the common entry.
    initial: Row<'data>,
    /// Distances from the start of the function, ascending, each with the row from there on.
    rows: Vec<(u64, Row<'data>)>,
    code_factor: u64,
}

impl<'data> Rows<'data> {
    /// Carries out the instructions of a common entry, then those of an entry. `None` for instructions that are not known, or
    /// distances that do not ascend.
    pub(super) fn new(common: &'data [u8], own: &'data [u8], code_factor: u64) -> Option<Self> {
        let mut machine = Machine { code_factor, ..Machine::default() };
        machine.run(common)?;
        if machine.place != 0 {
            return None;
        }
        machine.initial = machine.row.clone();
        machine.rows.clear();
        machine.run(own)?;
        machine.rows.push((machine.place, machine.row));
        Some(Self { initial: machine.initial, rows: machine.rows, code_factor })
    }

    /// The row at `distance` from the function's start.
    pub(super) fn at(&self, distance: u64) -> &Row<'data> {
        let after = self.rows.partition_point(|(place, _)| *place <= distance);
        self.rows[..after].last().map_or(&self.initial, |(_, row)| row)
    }

    /// Instructions for a copy: `rows` hold from their distances from its start on, which ascend; the last one up to the end of
    /// the copy. `None` for distances that the factor does not divide, and rows of other functions that cannot be written here.
    pub(super) fn program(&self, rows: &[(&Row<'data>, u32)]) -> Option<Vec<u8>> {
        let mut program = Vec::new();
        let (mut known, mut position) = (&self.initial, 0);
        for &(row, copy) in rows {
            if row == known {
                continue;
            }
            advance(&mut program, u64::from(copy.checked_sub(position)?), self.code_factor)?;
            position = copy;
            self.change(known, row, &mut program)?;
            known = row;
        }
        Some(program)
    }

    /// Writes what leads from one row to another.
    fn change(&self, from: &Row<'data>, to: &Row<'data>, program: &mut Vec<u8>) -> Option<()> {
        if from.frame != to.frame {
            match to.frame.as_ref()? {
                Frame::Register { register, offset: Offset::Plain(offset) } => {
                    program.push(0x0c);
                    write_unsigned(program, *register);
                    write_unsigned(program, *offset);
                }
                Frame::Register { register, offset: Offset::Factored(offset) } => {
                    program.push(0x12);
                    write_unsigned(program, *register);
                    write_signed(program, *offset);
                }
                Frame::Expression(expression) => {
                    program.push(0x0f);
                    put_block(program, expression);
                }
            }
        }
        for register in from.rules.keys().filter(|register| !to.rules.contains_key(register)) {
            // Only what the common entry does not mention can have no rule again. A row of another function may differ.
            if self.initial.rules.contains_key(register) {
                return None;
            }
            program.push(0x06);
            write_unsigned(program, *register);
        }
        for (register, rule) in &to.rules {
            if from.rules.get(register) != Some(rule) {
                put_rule(program, *register, rule);
            }
        }
        if from.arguments != to.arguments {
            program.push(0x2e);
            write_unsigned(program, to.arguments);
        }
        if from.is_signed != to.is_signed {
            program.push(0x2d);
        }
        Some(())
    }
}

/// Carries out instructions.
#[derive(Default)]
struct Machine<'data> {
    code_factor: u64,
    place: u64,
    row: Row<'data>,
    initial: Row<'data>,
    remembered: Vec<Row<'data>>,
    rows: Vec<(u64, Row<'data>)>,
    /// Rules in `rows`.
    rules: usize,
}

impl<'data> Machine<'data> {
    fn run(&mut self, instructions: &'data [u8]) -> Option<()> {
        let mut reader = Reader::new(instructions);
        while let Some(opcode) = reader.byte() {
            self.step(opcode, &mut reader)?;
        }
        Some(())
    }

    fn advance(&mut self, count: u64) -> Option<()> {
        /// Rules of all rows of a function; generated code with large frames has a few thousand.
        const MAX_RULES: usize = 1 << 20;
        self.rules += 1 + self.row.rules.len();
        if self.rules > MAX_RULES {
            return None;
        }
        self.rows.push((self.place, self.row.clone()));
        self.place = self.place.checked_add(count.checked_mul(self.code_factor)?)?;
        Some(())
    }

    fn restore(&mut self, register: u64) {
        match self.initial.rules.get(&register) {
            Some(rule) => self.row.rules.insert(register, rule.clone()),
            None => self.row.rules.remove(&register),
        };
    }

    fn step(&mut self, opcode: u8, reader: &mut Reader<'data>) -> Option<()> {
        let low = u64::from(opcode & 0x3f);
        match opcode >> 6 {
            1 => return self.advance(low),
            2 => {
                let rule = Rule::Stored(i64::try_from(reader.unsigned()?).ok()?);
                self.row.rules.insert(low, rule);
                return Some(());
            }
            3 => {
                self.restore(low);
                return Some(());
            }
            _ => {}
        }
        match opcode {
            0x00 => {}
            0x02 => {
                let count = reader.little_endian(1)?;
                self.advance(count)?;
            }
            0x03 => {
                let count = reader.little_endian(2)?;
                self.advance(count)?;
            }
            0x04 => {
                let count = reader.little_endian(4)?;
                self.advance(count)?;
            }
            0x06 => {
                let register = reader.unsigned()?;
                self.restore(register);
            }
            0x0a => self.remembered.push(self.row.clone()),
            0x0b => {
                let remembered = self.remembered.pop()?;
                // GCC's unwinder does not remember the bytes of arguments.
                self.row = Row { arguments: self.row.arguments, ..remembered };
            }
            0x0c..=0x0f | 0x12 | 0x13 => self.set_frame(opcode, reader)?,
            0x2d => self.row.is_signed ^= true,
            0x2e => self.row.arguments = reader.unsigned()?,
            _ => {
                let register = reader.unsigned()?;
                let rule = rule(opcode, reader)?;
                self.row.rules.insert(register, rule);
            }
        }
        Some(())
    }

    fn set_frame(&mut self, opcode: u8, reader: &mut Reader<'data>) -> Option<()> {
        let known = match &self.row.frame {
            Some(Frame::Register { register, offset }) => Some((*register, *offset)),
            _ => None,
        };
        let (register, offset) = match opcode {
            0x0c => (reader.unsigned()?, Offset::Plain(reader.unsigned()?)),
            0x12 => (reader.unsigned()?, Offset::Factored(reader.signed()?)),
            0x0d => (reader.unsigned()?, known?.1),
            0x0e => (known?.0, Offset::Plain(reader.unsigned()?)),
            0x13 => (known?.0, Offset::Factored(reader.signed()?)),
            _ => {
                self.row.frame = Some(Frame::Expression(reader.block()?));
                return Some(());
            }
        };
        self.row.frame = Some(Frame::Register { register, offset });
        Some(())
    }
}

/// The rule that an instruction, whose register was read, gives it.
fn rule<'data>(opcode: u8, reader: &mut Reader<'data>) -> Option<Rule<'data>> {
    Some(match opcode {
        0x05 => Rule::Stored(i64::try_from(reader.unsigned()?).ok()?),
        0x07 => Rule::Undefined,
        0x08 => Rule::SameValue,
        0x09 => Rule::Register(reader.unsigned()?),
        0x10 => Rule::StoredAt(reader.block()?),
        0x11 => Rule::Stored(reader.signed()?),
        0x14 => Rule::Value(i64::try_from(reader.unsigned()?).ok()?),
        0x15 => Rule::Value(reader.signed()?),
        0x16 => Rule::ValueOf(reader.block()?),
        _ => return None,
    })
}

fn put_rule(program: &mut Vec<u8>, register: u64, rule: &Rule<'_>) {
    let opcode = match rule {
        Rule::Undefined => 0x07,
        Rule::SameValue => 0x08,
        Rule::Stored(offset) => {
            return match u64::try_from(*offset) {
                Ok(offset) if register < 0x40 => {
                    program.push(0x80 | register as u8);
                    write_unsigned(program, offset);
                }
                _ => {
                    program.push(0x11);
                    write_unsigned(program, register);
                    write_signed(program, *offset);
                }
            };
        }
        Rule::Value(_) => 0x15,
        Rule::Register(_) => 0x09,
        Rule::StoredAt(_) => 0x10,
        Rule::ValueOf(_) => 0x16,
    };
    program.push(opcode);
    write_unsigned(program, register);
    match rule {
        Rule::Value(offset) => write_signed(program, *offset),
        Rule::Register(other) => write_unsigned(program, *other),
        Rule::StoredAt(expression) | Rule::ValueOf(expression) => put_block(program, expression),
        Rule::Undefined | Rule::SameValue | Rule::Stored(_) => {}
    }
}

fn advance(program: &mut Vec<u8>, distance: u64, factor: u64) -> Option<()> {
    let count = distance.checked_div(factor).filter(|count| count * factor == distance)?;
    match count {
        0 => {}
        1..=0x3f => program.push(0x40 | count as u8),
        0x40..=0xff => program.extend([0x02, count as u8]),
        0x100..=0xffff => {
            program.push(0x03);
            program.extend((count as u16).to_le_bytes());
        }
        _ => {
            program.push(0x04);
            program.extend(u32::try_from(count).ok()?.to_le_bytes());
        }
    }
    Some(())
}

fn put_block(program: &mut Vec<u8>, block: &[u8]) {
    write_unsigned(program, block.len() as u64);
    program.extend_from_slice(block);
}

#[cfg(test)]
mod tests {
    use super::Rows;

    /// Frame at register 7 plus 8; return address stored.
    const COMMON: &[u8] = &[0x0c, 7, 8, 0x90, 1];
    /// push (frame +16, register 6 stored), set up register 6, remember, pop, restore.
    const OWN: &[u8] = &[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x4a, 0x0a, 0x0c, 7, 8, 0x41, 0x0b];

    #[test]
    fn a_whole_function_keeps_its_rows() {
        let rows = Rows::new(COMMON, OWN, 1).unwrap();
        let places: Vec<_> = (0..20).map(|place| (rows.at(place), place as u32)).collect();
        let program = rows.program(&places).unwrap();
        let again = Rows::new(COMMON, &program, 1).unwrap();
        for place in 0..20 {
            assert_eq!(rows.at(place), again.at(place), "{place}");
        }
    }

    #[test]
    fn a_part_starts_with_the_row_of_its_middle() {
        let rows = Rows::new(COMMON, OWN, 1).unwrap();
        // Copies of longer instructions from the distance 4 on.
        let places = [(4, 0), (10, 9), (14, 20), (15, 22)];
        let again_program = rows.program(&places.map(|(original, copy)| (rows.at(original), copy))).unwrap();
        let again = Rows::new(COMMON, &again_program, 1).unwrap();
        for (original, copy) in places {
            assert_eq!(rows.at(original), again.at(u64::from(copy)), "{original}");
        }
        assert_eq!(rows.at(4), again.at(8));
    }

    #[test]
    fn remembered_states_know_whether_return_addresses_are_signed() {
        // Signed; remembered; no longer signed; restored.
        let rows = Rows::new(COMMON, &[0x41, 0x2d, 0x41, 0x0a, 0x41, 0x2d, 0x41, 0x0b], 1).unwrap();
        assert_eq!(rows.at(4), rows.at(1));
        assert_ne!(rows.at(3), rows.at(1));
        // Bytes of arguments are not remembered.
        let rows = Rows::new(COMMON, &[0x0a, 0x41, 0x2e, 16, 0x41, 0x0b], 1).unwrap();
        assert_eq!(rows.at(2), rows.at(1));
    }

    #[test]
    fn unknown_instructions_are_not_carried_out() {
        assert!(Rows::new(COMMON, &[0x3c], 1).is_none());
        assert!(Rows::new(COMMON, &[0x0b], 1).is_none());
        assert!(Rows::new(COMMON, &[0x86], 1).is_none());
    }
}
