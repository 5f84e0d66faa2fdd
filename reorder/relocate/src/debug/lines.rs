//! `.debug_line`: all programs, one after the other, with their headers as they were.

use std::collections::BTreeMap;

use gimli::{DebugLine, DebugLineOffset, LineEncoding, LittleEndian, Reader};
use rayon::prelude::*;

use super::line_program::{Obstacle, Parameters, rewrite};
use super::pieces::Pieces;
use super::sections::{DebugSection, Slice, cannot_update};
use reorder_base::error::Result;

/// The new section, and where each program went.
#[derive(Debug, Default)]
pub struct Lines {
    /// The new section.
    pub bytes: Vec<u8>,
    /// Old to new position of each program.
    pub places: BTreeMap<usize, usize>,
}

/// Rewrites all programs.
///
/// # Errors
/// A damaged program; R10 for code that comes in bundles, and for instructions that cannot be rewritten.
pub fn move_lines(section: &DebugSection<'_>, pieces: &Pieces) -> Result<Lines> {
    let mut starts = Vec::new();
    let mut position = 0;
    while position < section.bytes.len() {
        starts.push(position);
        position = next_program(section, position)?;
    }
    let programs =
        starts.par_iter().map(|&start| move_program(section, start, pieces)).collect::<Result<Vec<_>>>()?;
    let mut lines = Lines::default();
    for (start, mut program) in starts.into_iter().zip(programs) {
        lines.places.insert(start, lines.bytes.len());
        lines.bytes.append(&mut program);
    }
    Ok(lines)
}

/// Where the unit after the one at `start` begins.
fn next_program(section: &DebugSection<'_>, start: usize) -> Result<usize> {
    let mut rest = gimli::EndianSlice::new(&section.bytes, LittleEndian);
    let whole = rest;
    let end = rest.skip(start).and_then(|()| {
        let (length, _) = rest.read_initial_length()?;
        rest.skip(length)?;
        Ok(rest.offset_from(whole))
    });
    end.map_err(|error| section.damaged(start, error))
}

fn move_program(section: &DebugSection<'_>, start: usize, pieces: &Pieces) -> Result<Vec<u8>> {
    with_header_of(section, start, |program, parameters, output| {
        rewrite(program.opcodes, program.lengths, parameters, pieces, output)
    })
}

/// The parts of a program that rows are read from.
#[derive(Clone, Copy)]
pub struct Program<'data> {
    /// The instructions.
    pub opcodes: Slice<'data>,
    /// Numbers of operands of standard opcodes.
    pub lengths: Slice<'data>,
}

/// A program with the header of the one at `start`, and the instructions that `write` makes from it.
///
/// # Errors
/// A damaged program; R10 for code that comes in bundles, and for what `write` cannot express.
pub(crate) fn with_header_of<'data>(
    section: &'data DebugSection<'_>,
    start: usize,
    write: impl FnOnce(Program<'data>, Parameters, &mut Vec<u8>) -> std::result::Result<(), Obstacle>,
) -> Result<Vec<u8>> {
    let broken = |error: gimli::Error| section.damaged(start, error);
    let reader = DebugLine::new(&section.bytes, LittleEndian);
    let program = reader.program(DebugLineOffset(start), 8, None, None).map_err(broken)?;
    let header = program.header();
    let opcodes = header.raw_program_buf();
    let encoding: LineEncoding = header.line_encoding();
    if encoding.maximum_operations_per_instruction > 1 {
        let reason = format!("the line program at {start:#x} counts instructions in bundles");
        return Err(cannot_update(reason).into());
    }
    let whole = gimli::EndianSlice::new(&section.bytes, LittleEndian);
    let opcodes_at = opcodes.offset_from(whole);
    let mut output = section.bytes.get(start..opcodes_at).unwrap_or_default().to_vec();
    let parameters = Parameters { encoding, opcode_base: header.opcode_base() };
    let lengths = *header.standard_opcode_lengths();
    match write(Program { opcodes, lengths }, parameters, &mut output) {
        Ok(()) => {}
        Err(Obstacle::Damaged(error)) => return Err(broken(error)),
        Err(Obstacle::Instruction(what, address)) => {
            let reason =
                format!("the line program at {start:#x} has {what} for code that moved or went apart");
            return Err(cannot_update(reason).at(address).into());
        }
    }
    let (at, width) = match header.format() {
        gimli::Format::Dwarf32 => (0, 4),
        gimli::Format::Dwarf64 => (4, 8),
    };
    let length = (output.len() - at - width) as u64;
    match output.get_mut(at..at + width) {
        Some(field) => field.copy_from_slice(&length.to_le_bytes()[..width]),
        None => return Err(section.damaged(start, "the program is cut off")),
    }
    Ok(output)
}
