//! The line program of copies: the rows of the instructions that have one.

use super::super::line_program::{Obstacle, Parameters, Sequence, State, Writer, read_sequence};
use super::super::sections::Slice;
use super::copied_code::{CopiedCode, CopiedRun};
use reorder_base::address::Address;

/// Writes the rows that `program` gives to copied instructions, for the copies. The header, whose `lengths` are those of
/// standard opcodes, is the same. `count` is false when too much was written.
///
/// # Errors
/// A program that cannot be read, or has unknown instructions for copied code.
pub(super) fn write(
    (program, lengths): (Slice<'_>, Slice<'_>),
    parameters: Parameters,
    copied: &CopiedCode,
    count: &dyn Fn() -> bool,
    output: &mut Vec<u8>,
) -> Result<(), Obstacle> {
    let mut rest = program;
    while !rest.is_empty() {
        let sequence = read_sequence(&mut rest, lengths, parameters)?;
        let Some(first) = sequence.rows.first().map(|row| row.address) else { continue };
        // A sequence without an address holds for no code.
        if sequence.addresses.is_empty() {
            continue;
        }
        for run in copied.overlapping(first, sequence.end).take_while(|_| count()) {
            if let Some(opcode) = sequence.unknown {
                let what = format!("the unknown instruction {opcode:#x}");
                return Err(Obstacle::Instruction(what, Address(first)));
            }
            write_run(&sequence, parameters, run, output);
        }
    }
    Ok(())
}

fn write_run(sequence: &Sequence<'_>, parameters: Parameters, run: &CopiedRun, output: &mut Vec<u8>) {
    let Some(first) = sequence.rows.first().map(|row| row.address) else { return };
    let part = run.part(first, sequence.end);
    let start = run.original.start.0.max(first);
    let end = run.original.end.0.min(sequence.end);
    let after = sequence.rows.partition_point(|row| row.address <= start);
    let mut writer = Writer::new(parameters, part.start.0, output);
    let mut from = after.saturating_sub(1);
    // Rows of one address stay together: the last one holds, and the others say where statements begin.
    while from > 0 && sequence.rows[from - 1].address == start && sequence.rows[from].address == start {
        from -= 1;
    }
    let rows = &sequence.rows[from..];
    for group in rows.chunk_by(|row, next| row.address == next.address) {
        let Some(last) = group.last().filter(|last| last.address < end) else { break };
        if last.address < start {
            // The copy begins inside of a statement.
            writer.row(part.start.0, &inside(last.state));
            continue;
        }
        let (guard, instruction) = run.guarded_place(last.address);
        if guard < instruction {
            // If the guard leaves for the original, the statement begins in the original.
            writer.row(guard.0, &inside(last.state));
        }
        group.iter().for_each(|row| writer.row(instruction.0, &row.state));
    }
    writer.end(part.end.0);
}

/// The state inside of a statement, where no debugger should stop for it.
fn inside(mut state: State) -> State {
    state.is_statement = false;
    state.is_block = false;
    state.ends_prologue = false;
    state.begins_epilogue = false;
    state
}
