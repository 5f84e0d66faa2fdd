//! Compares line programs: every address of a function has the same rows, in the same order.

use std::collections::{BTreeMap, BTreeSet};

use gimli::{ColumnType, DebugLineOffset, LineInstruction};

use super::coverage::{Range, is_code, is_inside, new_origin, padding_stayed, union};
use super::scene::Scene;
use super::view::Slice;
use reorder_base::address::{Address, NewAddress};

/// The contents of a row; the end of a sequence has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Said {
    file: u32,
    line: u32,
    column: u32,
    discriminator: u32,
    isa: u32,
    flags: [bool; 4],
}

/// Rows of one program, sorted into functions.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rows {
    /// New start of the function, its number in the program, new address, contents; `None` after the last row.
    functions: Vec<(u64, u32, u64, Option<Said>)>,
    /// Rows of code that is not in the image.
    dead: Vec<(u64, Option<Said>)>,
    /// Rows that begin between functions, with the address where the next one begins.
    between: Vec<(u64, u64, Said)>,
}

/// The addresses for which rows hold.
struct Places {
    /// Addresses between functions by contents of their rows; sorted and disjoint.
    between: BTreeMap<Said, Vec<Range>>,
    /// Contents of rows in functions.
    functions: BTreeSet<Said>,
}

impl Places {
    fn of(rows: &Rows) -> Self {
        let mut between: BTreeMap<Said, Vec<Range>> = BTreeMap::new();
        for &(start, stop, said) in &rows.between {
            between.entry(said).or_default().push((start, stop.max(start.saturating_add(1))));
        }
        between.values_mut().for_each(|ranges| *ranges = union(std::mem::take(ranges)));
        Self { between, functions: rows.functions.iter().filter_map(|row| row.3).collect() }
    }

    /// Whether a row between functions holds at `address`. A row of a function may reach there, too.
    fn holds(&self, address: u64, said: Said) -> bool {
        self.functions.contains(&said)
            || self
                .between
                .get(&said)
                .is_some_and(|ranges| is_inside((address, address.saturating_add(1)), ranges))
    }
}

/// Compares two programs; returns the number of rows, or what differs.
pub(super) fn compare_programs(
    pair: Scene<'_>,
    old: (&gimli::Dwarf<Slice<'_>>, usize),
    new: (&gimli::Dwarf<Slice<'_>>, usize),
) -> gimli::Result<std::result::Result<usize, &'static str>> {
    let (old_rows, new_rows) = (read(old)?, read(new)?);
    let (first, second) = (old_rows.header().clone(), new_rows.header().clone());
    if unrun(&first)? != unrun(&second)? {
        return Ok(Err("instructions that no rows show"));
    }
    let is_same = first.encoding() == second.encoding()
        && first.line_encoding() == second.line_encoding()
        && first.include_directories() == second.include_directories()
        && first.file_names() == second.file_names();
    if !is_same {
        return Ok(Err("the header of the line program"));
    }
    let function = |address: u64| {
        let found = pair.moves.containing(Address(address))?;
        Some((found.old_start.0, found.delta(), found.old_end().0))
    };
    let before = rows(pair, old_rows, function, |address| {
        pair.moves.following(Address(address.wrapping_sub(1))).map(|next| next.old_start.0)
    })?;
    let function = |address: u64| {
        let found = pair.moves.containing_new(NewAddress(address))?;
        Some((found.new_start.0, 0, found.new_end().0))
    };
    let after = rows(pair, new_rows, function, |address| {
        pair.moves.following_new(NewAddress(address.wrapping_sub(1))).map(|next| next.new_start.0)
    })?;
    let places = Places::of(&before);
    Ok(if before.functions != after.functions {
        Err("rows of functions")
    } else if before.dead != after.dead
        || !after.between.iter().all(|&(start, stop, said)| {
            // `new_origin` can take padding that stayed for padding that moved with the next function; such a row may keep the
            // contents it had at its own address.
            let next = pair.moves.following_new(NewAddress(start)).map_or(stop, |next| next.new_start.0);
            places.holds(new_origin(pair, start), said)
                || padding_stayed(pair, (start, stop.min(next))) && places.holds(start, said)
        })
    {
        Err("rows outside of functions")
    } else {
        Ok(before.functions.len())
    })
}

/// Instructions that name files or are unknown, in order: they do not show in the rows.
fn unrun<'data>(
    header: &gimli::LineProgramHeader<Slice<'data>>,
) -> gimli::Result<Vec<LineInstruction<Slice<'data>>>> {
    let mut instructions = header.instructions();
    let mut found = Vec::new();
    while let Some(instruction) = instructions.next_instruction(header)? {
        if matches!(
            instruction,
            LineInstruction::DefineFile(_)
                | LineInstruction::UnknownExtended(..)
                | LineInstruction::UnknownStandard0(_)
                | LineInstruction::UnknownStandard1(..)
                | LineInstruction::UnknownStandardN(..)
        ) {
            found.push(instruction);
        }
    }
    Ok(found)
}

fn read<'data>(
    (dwarf, offset): (&gimli::Dwarf<Slice<'data>>, usize),
) -> gimli::Result<gimli::IncompleteLineProgram<Slice<'data>>> {
    dwarf.debug_line.program(DebugLineOffset(offset), 8, None, None)
}

/// Sorts rows into functions. `function` gives start, distance of the move and end; `next` the first start from an
/// address on. A row that reaches into the next function stands at its start as well.
fn rows(
    pair: Scene<'_>,
    program: gimli::IncompleteLineProgram<Slice<'_>>,
    function: impl Fn(u64) -> Option<(u64, u64, u64)>,
    next: impl Fn(u64) -> Option<u64>,
) -> gimli::Result<Rows> {
    let mut sorted = Rows::default();
    let mut rows = program.rows();
    let mut sequence: Vec<(u64, Said)> = Vec::new();
    let mut number = 0;
    while let Some((_, row)) = rows.next_row()? {
        if !row.end_sequence() {
            sequence.push((row.address(), said(row)));
            continue;
        }
        let end = row.address();
        // Contents that hold for no address before the end of the sequence have no effect.
        while sequence.last().is_some_and(|row| row.0 == end) {
            sequence.pop();
        }
        let rows = std::mem::take(&mut sequence);
        let first = rows.first().map_or(end, |row| row.0);
        if !is_code(pair, first) {
            sorted.dead.extend(rows.into_iter().map(|(address, said)| (address, Some(said))));
            sorted.dead.push((end, None));
            continue;
        }
        for (at, &(address, said)) in rows.iter().enumerate() {
            let stop = rows.get(at + 1).map_or(end, |next| next.0);
            push(&mut sorted, &function, &mut number, address, stop, Some(said));
            // A row reaches up to the next one, over the starts of all functions between.
            let mut position = address.saturating_add(1);
            while let Some(start) = next(position).filter(|start| *start < stop) {
                push(&mut sorted, &function, &mut number, start, stop, Some(said));
                position = start.saturating_add(1);
            }
        }
        if function(end).is_none_or(|(start, _, _)| start != end) {
            push(&mut sorted, &function, &mut number, end, end, None);
        }
    }
    sorted.functions.sort_by_key(|row| (row.0, row.1));
    // The order of rows of different functions has no meaning.
    for (at, row) in sorted.functions.iter_mut().enumerate() {
        row.1 = at as u32;
    }
    Ok(sorted)
}

/// There are many rows, and no compiler writes numbers that do not fit.
fn said(row: &gimli::LineRow) -> Said {
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    Said {
        file: narrow(row.file_index()),
        line: narrow(row.line().map_or(0, u64::from)),
        column: match row.column() {
            ColumnType::LeftEdge => 0,
            ColumnType::Column(column) => narrow(column.get()),
        },
        discriminator: narrow(row.discriminator()),
        isa: narrow(row.isa()),
        flags: [row.is_stmt(), row.basic_block(), row.prologue_end(), row.epilogue_begin()],
    }
}

fn push(
    sorted: &mut Rows,
    function: &impl Fn(u64) -> Option<(u64, u64, u64)>,
    number: &mut u32,
    address: u64,
    stop: u64,
    said: Option<Said>,
) {
    *number = number.saturating_add(1);
    match (function(address), said) {
        (Some((start, delta, _)), said) => {
            sorted.functions.push((start.wrapping_add(delta), *number, address.wrapping_add(delta), said));
        }
        (None, Some(said)) => sorted.between.push((address, stop, said)),
        (None, None) => {}
    }
}
