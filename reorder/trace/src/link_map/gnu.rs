//! Maps of GNU ld and gold.
//!
//! ```text
//! .text           0x00000000000010e0      0x61f
//!  *(.text .stub .text.* .gnu.linkonce.t.*)
//!  .text.alpha    0x00000000000011ce        0x9 a.o
//!                 0x00000000000011ce                alpha
//!  *fill*         0x00000000000011d7        0x9
//!  .text.a_long_name_has_its_figures_in_the_next_line
//!                 0x00000000000011e7        0x9 lib.a(b.o)
//! ```
//!
//! Headings depend on the language, so none is relied on: a name at the start of a line with two figures is an output
//! section, and a name one blank further right with two figures and a file is an input section.
//! Sections that were discarded are listed before the first output section.

use super::{Output, PlacedSection, checked, lines, word};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::numbers::prefixed_hexadecimal;

/// Commands of a script that put data into a section and look like sections themselves.
const DATA_COMMANDS: [&[u8]; 6] = [b"BYTE", b"SHORT", b"LONG", b"QUAD", b"SQUAD", b"ASCIZ"];

/// A name whose figures may be in the next line.
#[derive(Clone, Copy)]
enum Pending<'data> {
    Nothing,
    Output(&'data [u8]),
    Input(&'data [u8]),
}

/// The nonempty input sections.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<PlacedSection<'_>>> {
    let mut sections = Vec::new();
    let mut output = Output::default();
    let mut pending = Pending::Nothing;
    for (offset, line) in lines(bytes) {
        let (name, rest) = match split_name(line) {
            Some((name, [])) => {
                if matches!(name, Pending::Output(_)) {
                    output.name = None;
                }
                pending = name;
                continue;
            }
            Some(pair) => pair,
            None => (std::mem::replace(&mut pending, Pending::Nothing), line),
        };
        pending = Pending::Nothing;
        match (name, figures(rest)) {
            (Pending::Output(name), Some((address, ..))) => output.begin(name, address),
            (Pending::Output(_), None) => output.name = None,
            (Pending::Input(name), Some((address, size, object))) => {
                let Some(output) = output.name else { continue };
                if size > 0 && !object.is_empty() && !DATA_COMMANDS.contains(&name) {
                    let address = Address(address);
                    let placed = PlacedSection { address, size, alignment: None, output, object, name };
                    sections.push(checked(offset, placed)?);
                }
            }
            _ => {}
        }
    }
    Ok(sections)
}

/// The name that a line begins with, if it is in one of the two places of names, and what follows it.
fn split_name(line: &[u8]) -> Option<(Pending<'_>, &[u8])> {
    let inner = line.strip_prefix(b" ").unwrap_or(line);
    let (name, rest) = word(inner).filter(|(name, _)| inner.starts_with(name))?;
    let is_input = inner.len() < line.len();
    // Patterns, fillers and what gold itself makes begin with a star.
    let pending = match is_input {
        true if name.starts_with(b"*") => Pending::Nothing,
        true => Pending::Input(name),
        false => Pending::Output(name),
    };
    Some((pending, rest))
}

/// Address, size, and the file after them, whose name may have blanks.
fn figures(text: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (address, rest) = word(text)?;
    let (size, rest) = word(rest)?;
    Some((prefixed_hexadecimal(address)?, prefixed_hexadecimal(size)?, rest.trim_ascii()))
}
