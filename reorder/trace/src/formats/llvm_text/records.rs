//! The functions and their counters.

use super::lines::{self, Lines};
use crate::Note;
use crate::formats::llvm_merged::Counted;
use crate::formats::llvm_names::name_hash;
use reorder_base::error::{Error, Result};

/// All of them.
#[derive(Default)]
pub(super) struct Records<'data> {
    pub(super) functions: Vec<Function<'data>>,
    /// Why there are not more.
    pub(super) damage: Option<Note>,
}

/// One of them.
pub(super) struct Function<'data> {
    pub(super) name: &'data [u8],
    /// Whether any of its blocks ran.
    pub(super) ran: bool,
    frequency: u64,
}

impl<'data> Function<'data> {
    pub(super) fn counted(&self) -> Counted<'data> {
        Counted { count: self.frequency, hash: name_hash(self.name), name: self.name }
    }
}

/// Everything up to the first line that is not as it must be.
pub(super) fn read<'data>(lines: &mut Lines<'data>, counts_entries: bool) -> Records<'data> {
    let mut records = Records::default();
    while let Some(name) = lines.next() {
        match read_function(name, lines, counts_entries) {
            Ok(function) => records.functions.push(function),
            Err(error) => {
                let kept = records.functions.len();
                let message = format!("the functions are damaged after the first {kept}: {}", error.message);
                records.damage = Some(Note::at(error.offset.unwrap_or_default(), message));
                break;
            }
        }
    }
    records
}

fn read_function<'data>(
    name: &'data [u8],
    lines: &mut Lines<'data>,
    counts_entries: bool,
) -> Result<Function<'data>> {
    lines.number("the hash of a function")?;
    let at = lines.offset();
    let count = lines.number("the number of counters of a function")?;
    if count == 0 {
        return Err(Error::malformed(at, "a function without counters"));
    }
    let first = lines.number("a counter")?;
    let mut greatest = first;
    for _ in 1..count {
        greatest = greatest.max(lines.number("a counter")?);
    }
    skip_bitmap(lines)?;
    skip_values(lines)?;
    let frequency = if counts_entries { first } else { greatest };
    Ok(Function { name, ran: greatest > 0, frequency })
}

/// `$` and the number of bytes, then the bytes, one a line.
fn skip_bitmap(lines: &mut Lines<'_>) -> Result<()> {
    let Some(count) = lines.peek().and_then(|line| line.strip_prefix(b"$")).and_then(lines::number) else {
        return Ok(());
    };
    lines.next();
    (0..count).try_for_each(|_| lines.number("a byte of a bitmap").map(|_| ()))
}

/// The number of kinds; of each its number, the number of sites, and of each site the number of values and the values,
/// one a line. A line that is not a decimal number is the next function's name.
fn skip_values(lines: &mut Lines<'_>) -> Result<()> {
    let is_decimal = |line: &[u8]| line.iter().all(u8::is_ascii_digit);
    let Some(kinds) = lines.peek().filter(|line| is_decimal(line)).and_then(lines::number) else {
        return Ok(());
    };
    lines.next();
    for _ in 0..kinds {
        lines.number("a kind of values")?;
        for _ in 0..lines.number("a number of value sites")? {
            for _ in 0..lines.number("a number of values")? {
                let at = lines.offset();
                lines
                    .next()
                    .ok_or_else(|| Error::malformed(at, "the file ends where a value is expected"))?;
            }
        }
    }
    Ok(())
}
