//! Maps of lld and mold: a table of output sections, input sections and symbols, distinguished by their indentation.
//!
//! ```text
//!              VMA              LMA     Size Align Out     In      Symbol
//!             1da0             1da0      61f    16 .text
//!             1e89             1e89        5     1         lib.a(a.o):(.text.helper)
//!             1e89             1e89        5     1                 helper
//! ```
//!
//! lld's figures are hexadecimal but for the alignment; mold has no LMA, and only its addresses are hexadecimal.

use super::{Output, PlacedSection, checked, lines, word};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::numbers::{decimal, hexadecimal, prefixed_hexadecimal};

/// Whose table it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    Lld,
    Mold,
}

impl Columns {
    /// By the heads of the columns.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let head = &bytes[..bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len()).min(256)];
        let mut words = head.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        match (words.next()?, words.next()?) {
            (b"VMA", b"LMA") => Some(Self::Lld),
            (b"VMA", b"Size") => Some(Self::Mold),
            _ => None,
        }
    }

    /// Address, size and alignment, and what follows the blank after them.
    fn row(self, line: &[u8]) -> Option<(u64, u64, u64, &[u8])> {
        let (address, rest) = word(line)?;
        let (size, rest) = match self {
            Self::Lld => word(word(rest)?.1)?,
            Self::Mold => word(rest)?,
        };
        let (alignment, rest) = word(rest)?;
        let figures = match self {
            Self::Lld => (hexadecimal(address)?, hexadecimal(size)?),
            Self::Mold => (prefixed_hexadecimal(address).or_else(|| decimal(address))?, decimal(size)?),
        };
        Some((figures.0, figures.1, decimal(alignment)?, rest.strip_prefix(b" ")?))
    }
}

/// The nonempty input sections.
pub(super) fn read(bytes: &[u8], columns: Columns) -> Result<Vec<PlacedSection<'_>>> {
    let mut sections = Vec::new();
    let mut output = Output::default();
    for (offset, line) in lines(bytes).skip(1) {
        let Some((address, size, alignment, rest)) = columns.row(line) else { continue };
        let text = rest.trim_ascii_start();
        match rest.len() - text.len() {
            // Assignments of a script come between the output sections; they have no input sections.
            0 => output.begin(text, address),
            8 if size > 0 => {
                let Some((name, (object, section))) = output.name.zip(object_and_section(text)) else {
                    continue;
                };
                let alignment = Some(alignment.max(1));
                let address = Address(address);
                let placed = PlacedSection { address, size, alignment, output: name, object, name: section };
                sections.push(checked(offset, placed)?);
            }
            _ => {}
        }
    }
    Ok(sections)
}

/// The parts of `path/a.o:(.text.f)`; data and assignments of a script have none.
fn object_and_section(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = text.strip_suffix(b")")?;
    let at = inner.windows(2).position(|pair| pair == b":(")?;
    Some((&inner[..at], &inner[at + 2..]))
}
