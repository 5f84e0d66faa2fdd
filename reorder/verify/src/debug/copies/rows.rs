//! Which rows of line programs hold at an address.

use std::collections::HashMap;

use gimli::ColumnType;

use super::points::Saying;
use super::{Read, Slice};

/// What each of the `addresses`, which ascend, is said to be by the line programs of `units`.
pub(super) fn say<'data>(
    dwarf: &gimli::Dwarf<Slice<'data>>,
    units: &[gimli::Unit<Slice<'data>>],
    addresses: &[u64],
    saying: &mut Saying,
) -> Read<Vec<u32>> {
    let mut said = vec![0; addresses.len()];
    for unit in units {
        say_unit(dwarf, unit, addresses, &mut said, saying).map_err(|error| error.to_string())?;
    }
    Ok(said)
}

fn say_unit<'data>(
    dwarf: &gimli::Dwarf<Slice<'data>>,
    unit: &gimli::Unit<Slice<'data>>,
    addresses: &[u64],
    said: &mut [u32],
    saying: &mut Saying,
) -> gimli::Result<()> {
    let mut covered = Vec::new();
    let mut ranges = dwarf.unit_ranges(unit)?;
    while let Some(range) = ranges.next()? {
        let first = |address| addresses.partition_point(|known| *known < address);
        if first(range.begin) < first(range.end) {
            covered.push((range.begin, range.end));
        }
    }
    covered.sort_unstable();
    let Some(program) = unit.line_program.clone().filter(|_| !covered.is_empty()) else { return Ok(()) };
    let mut files: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut rows = program.rows();
    let mut last: Option<(u64, Vec<u8>, bool)> = None;
    while let Some((header, row)) = rows.next_row()? {
        let address = row.address();
        if let Some((start, thing, is_statement)) = last.take().filter(|(start, ..)| *start < address) {
            let mut parts = |from: u64, to: u64, thing: &[u8]| {
                let thing = saying.thing(thing.to_vec());
                let first = covered.partition_point(|(_, end)| *end <= from);
                for (begin, end) in covered[first..].iter().take_while(|(begin, _)| *begin < to) {
                    saying.say(addresses, said, (from.max(*begin), to.min(*end)), thing);
                }
            };
            // Debuggers stop where a statement begins, which is the first address of the row alone.
            let begins = [thing.as_slice(), &[u8::from(is_statement)]].concat();
            parts(start, start + 1, &begins);
            parts(start + 1, address, &[thing.as_slice(), &[0]].concat());
        }
        if row.end_sequence() {
            continue;
        }
        let file = match files.get(&row.file_index()) {
            Some(file) => file.clone(),
            None => {
                let file = name_of(dwarf, unit, header, row)?;
                files.insert(row.file_index(), file.clone());
                file
            }
        };
        let column = match row.column() {
            ColumnType::LeftEdge => 0,
            ColumnType::Column(column) => column.get(),
        };
        let mut thing = vec![b'r'];
        for number in [row.line().map_or(0, u64::from), column, row.discriminator(), row.isa()] {
            thing.extend_from_slice(&number.to_le_bytes());
        }
        thing.extend(file);
        last = Some((address, thing, row.is_stmt()));
    }
    Ok(())
}

/// Directory and name of a row's file.
fn name_of<'data>(
    dwarf: &gimli::Dwarf<Slice<'data>>,
    unit: &gimli::Unit<Slice<'data>>,
    header: &gimli::LineProgramHeader<Slice<'data>>,
    row: &gimli::LineRow,
) -> gimli::Result<Vec<u8>> {
    let Some(file) = row.file(header) else { return Ok(row.file_index().to_le_bytes().to_vec()) };
    let mut name = Vec::new();
    if let Some(directory) = file.directory(header) {
        name.extend_from_slice(dwarf.attr_string(unit, directory)?.slice());
    }
    name.push(0);
    name.extend_from_slice(dwarf.attr_string(unit, file.path_name())?.slice());
    Ok(name)
}
