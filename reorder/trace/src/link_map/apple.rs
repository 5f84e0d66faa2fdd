//! Maps of Apple's linkers: tables of object files, sections and symbols. Dead symbols and those of no size are left out.
//!
//! ```text
//! # Path: /build/App
//! # Arch: arm64
//! # Object files:
//! [  1] /build/main.o
//! # Sections:
//! # Address    Size        Segment  Section
//! 0x100003F50  0x00000034  __TEXT   __text
//! # Symbols:
//! # Address    Size        File  Name
//! 0x100003F50  0x00000034  [  1] _main
//! ```

use std::collections::BTreeMap;

use super::{PlacedSection, checked, lines, word};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::numbers::{decimal, prefixed_hexadecimal};

/// The names of sections in their common spelling; the map has the two parts in columns, so others are given as the map
/// has them.
const SPELLED: [&[u8]; 24] = [
    b"__TEXT,__text",
    b"__TEXT,__stubs",
    b"__TEXT,__stub_helper",
    b"__TEXT,__objc_stubs",
    b"__TEXT,__const",
    b"__TEXT,__cstring",
    b"__TEXT,__literal4",
    b"__TEXT,__literal8",
    b"__TEXT,__literal16",
    b"__TEXT,__gcc_except_tab",
    b"__TEXT,__unwind_info",
    b"__TEXT,__eh_frame",
    b"__DATA_CONST,__got",
    b"__DATA_CONST,__const",
    b"__DATA_CONST,__cfstring",
    b"__DATA,__got",
    b"__DATA,__la_symbol_ptr",
    b"__DATA,__const",
    b"__DATA,__data",
    b"__DATA,__bss",
    b"__DATA,__common",
    b"__DATA,__thread_vars",
    b"__DATA,__thread_data",
    b"__DATA,__thread_bss",
];

/// Whether the first two lines are those of such a map.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let mut first = lines(bytes).map(|(_, line)| line);
    let mut starts_with = |words: &[u8]| first.next().is_some_and(|line| line.starts_with(words));
    starts_with(b"# Path: ") && starts_with(b"# Arch: ")
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Files,
    Sections,
    Symbols,
    Other,
}

/// The symbols that have a size.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<PlacedSection<'_>>> {
    let mut table = Table::Other;
    let mut files = BTreeMap::new();
    let mut outputs = Vec::new();
    let mut sections = Vec::new();
    for (offset, line) in lines(bytes) {
        if let Some(heading) = line.strip_prefix(b"# ") {
            table = match heading {
                b"Object files:" => Table::Files,
                b"Sections:" => Table::Sections,
                b"Symbols:" => Table::Symbols,
                // Names of columns follow the name of their table.
                _ if heading.ends_with(b"Name") || heading.ends_with(b"Section") => table,
                _ => Table::Other,
            };
            continue;
        }
        match table {
            Table::Files => {
                if let Some((number, path)) = numbered(line) {
                    files.insert(number, path);
                }
            }
            Table::Sections => outputs.extend(output_section(line)),
            Table::Symbols => {
                if let Some(symbol) = symbol(line, &files, &outputs) {
                    sections.push(checked(offset, symbol)?);
                }
            }
            Table::Other => {}
        }
    }
    Ok(sections)
}

/// `[  1] path` or `[  1] symbol`.
fn numbered(text: &[u8]) -> Option<(u64, &[u8])> {
    let inner = text.trim_ascii_start().strip_prefix(b"[")?;
    let end = inner.iter().position(|&byte| byte == b']')?;
    Some((decimal(inner[..end].trim_ascii())?, inner[end + 1..].strip_prefix(b" ")?))
}

/// First address, the one past the last, and the name of a section.
fn output_section(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (address, rest) = word(line)?;
    let (size, rest) = word(rest)?;
    let both = rest.trim_ascii();
    let (segment, rest) = word(both)?;
    let section = rest.trim_ascii();
    let is_this = |spelled: &&[u8]| {
        spelled.strip_prefix(segment).and_then(|rest| rest.strip_prefix(b",")) == Some(section)
    };
    let name = SPELLED.into_iter().find(is_this).unwrap_or(both);
    let start = prefixed_hexadecimal(address)?;
    Some((start, start.checked_add(prefixed_hexadecimal(size)?)?, name))
}

fn symbol<'data>(
    line: &'data [u8],
    files: &BTreeMap<u64, &'data [u8]>,
    outputs: &[(u64, u64, &'data [u8])],
) -> Option<PlacedSection<'data>> {
    let (address, rest) = word(line)?;
    let (size, rest) = word(rest)?;
    let (file, name) = numbered(rest)?;
    let (address, size) = (prefixed_hexadecimal(address)?, prefixed_hexadecimal(size)?);
    // Linkers list sections by rising addresses.
    let index = outputs.partition_point(|(start, ..)| *start <= address).checked_sub(1)?;
    let (_, end, output) = outputs[index];
    (size > 0 && address < end).then_some(PlacedSection {
        address: Address(address),
        size,
        alignment: None,
        output,
        object: files.get(&file).copied().unwrap_or_default(),
        name,
    })
}
