//! Plain lists: one function per line, first executed first.
//!
//! A line is a symbol (`main`, `main+0x12`), an address as stated in the image (`0x1040`), or a line as `nm` prints
//! it (`0000000000001040 [0000000000000025] T main`). `#` starts a comment line.

use crate::address::Address;
use crate::error::{Error, Result};
use crate::trace::{Event, Evidence, Input, Location, Reading, Trace};

/// Whether it can be text: what is binary shows it by a NUL early on.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    !bytes[..bytes.len().min(4096)].contains(&0)
}

/// The list as one trace of no particular image.
///
/// # Errors
/// A line of several words that is not `nm`'s; with its number and offset.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut events = Vec::new();
    let mut offset = 0u64;
    for (number, line) in input.bytes.split(|&byte| byte == b'\n').enumerate() {
        let words: Vec<&[u8]> =
            line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).take(5).collect();
        if words.first().is_some_and(|word| !word.starts_with(b"#")) {
            events.push(read_line(&words).ok_or_else(|| {
                Error::malformed(offset, format!("line {}: neither a symbol nor an address", number + 1))
                    .with_hint("give one symbol, one 0x address or one line of `nm` output per line")
            })?);
        }
        offset += line.len() as u64 + 1;
    }
    Ok(Reading::of(Trace { weight: 1, evidence: Evidence::Listed, events, ..Trace::default() }))
}

fn read_line(words: &[&[u8]]) -> Option<Event> {
    match *words {
        [word] => Some(Event::at(match word.strip_prefix(b"0x").and_then(hexadecimal) {
            Some(address) => Location::Image(Address(address)),
            None => Location::Name(without_offset(word).into()),
        })),
        [address, [_], name] => Some(Event { name: Some(name.into()), ..at_address(address)? }),
        [address, size, [_], name] => {
            Some(Event { name: Some(name.into()), size: Some(hexadecimal(size)?), ..at_address(address)? })
        }
        _ => None,
    }
}

fn at_address(word: &[u8]) -> Option<Event> {
    hexadecimal(word).map(|address| Event::at(Location::Image(Address(address))))
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(word).ok()?;
    if digits.starts_with('+') { None } else { u64::from_str_radix(digits, 16).ok() }
}

/// `main` for `main+0x12`, which backtraces print.
fn without_offset(word: &[u8]) -> &[u8] {
    let plus = word.windows(3).rposition(|window| window == b"+0x");
    plus.filter(|&plus| plus > 0 && hexadecimal(&word[plus + 3..]).is_some())
        .map_or(word, |plus| &word[..plus])
}
