//! The exception tables of copies, in the form in which the writer puts them: call sites in LEB128, after a stated start of
//! what landing pads count from.

use std::ops::Range;

use super::places::Part;

/// The table of one copy.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Places of the fields of each call site: start, size, landing pad, action.
    pub sites: Vec<[usize; 4]>,
}

/// The tables that `entries`, unwind entries in the section `frames`, name in the section `home`.
pub(super) fn tables(bytes: &[u8], entries: &[Range<usize>], frames: &Part, home: &Part) -> Vec<Table> {
    let table = |entry: &Range<usize>| table(bytes, start(bytes, entry, frames, home)?);
    entries.iter().filter_map(table).collect()
}

/// Where in the file the table of an entry is: its field has four bytes, and counts from itself or from zero.
fn start(bytes: &[u8], entry: &Range<usize>, frames: &Part, home: &Part) -> Option<usize> {
    let field = entry.start + 17;
    if bytes.get(field - 1) != Some(&4) {
        return None;
    }
    let value = i32::from_le_bytes(bytes.get(field..field + 4)?.try_into().ok()?);
    let place = frames.address + (field - frames.bytes.start) as u64;
    let within = |from: u64| {
        let distance = from.wrapping_add(i64::from(value) as u64).checked_sub(home.address)?;
        usize::try_from(distance).ok().filter(|distance| *distance < home.bytes.len())
    };
    Some(home.bytes.start + within(place).or_else(|| within(0)).filter(|_| value != 0)?)
}

fn table(bytes: &[u8], start: usize) -> Option<Table> {
    const OMITTED: u8 = 0xff;
    let mut at = start + 6;
    if *bytes.get(start + 5)? != OMITTED {
        at = after_number(bytes, at);
    }
    // The encoding of call sites.
    at += 1;
    let first = after_number(bytes, at);
    let end = first + unsigned(bytes, at);
    let mut sites = Vec::new();
    at = first;
    while at < end {
        let mut fields = [0; 4];
        for field in &mut fields {
            *field = at;
            at = after_number(bytes, at);
        }
        sites.push(fields);
    }
    Some(Table { sites })
}

fn after_number(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(|byte| byte & 0x80 != 0) {
        at += 1;
    }
    at + 1
}

/// The number in LEB128 at `at`.
fn unsigned(bytes: &[u8], at: usize) -> usize {
    let field = bytes.get(at..after_number(bytes, at)).unwrap_or_default();
    field.iter().rev().fold(0, |value: usize, byte| value << 7 | usize::from(byte & 0x7f))
}
