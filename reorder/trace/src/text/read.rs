//! Text to [`Trace`].

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use layout_algos::sample::{Identity, Priority};

use super::blocks::{self, CONTINUATION};
use super::completeness::{self, Part, Section};
use super::digests;
use super::escape::unescape;
use super::{COMMAND_STRATA, FIRST_WORDS, VERSION};
use crate::{Draw, Event, Evidence, Location, Name, NameHash, Reading, Strata, Trace};
use reorder_base::address::{Address, RuntimeAddress};
use reorder_base::error::{Error, Result};
use reorder_base::hexadecimal::decode;
use reorder_base::numbers::{decimal, prefixed_hexadecimal};

/// All traces of one file, in file order, and notes where the file is not whole.
///
/// # Errors
/// Another version, or a line that is neither a header nor an event; with its number and offset.
pub fn read(bytes: &[u8]) -> Result<Reading> {
    let (lines, rest) = whole_lines(bytes);
    let mut sections: Vec<Section> = Vec::new();
    let mut offset = 0u64;
    for (number, line) in lines.split(|&byte| byte == b'\n').enumerate() {
        let broken = |what: &str| Error::malformed(offset, format!("line {}: {what}", number + 1));
        if let Some(version) = line.strip_prefix(FIRST_WORDS.as_bytes()) {
            if decimal(version.trim_ascii()) != Some(u64::from(VERSION)) {
                return Err(broken("a recorded trace of an unknown version")
                    .with_hint("read it with the `reorder` that recorded it, or record again"));
            }
            sections.push(Section::at(offset));
        } else if let Some(section) = sections.last_mut() {
            match line.strip_prefix(b"#") {
                Some(words) if words.starts_with(CONTINUATION) => {
                    let words = &words[CONTINUATION.len()..];
                    blocks::read(words, &mut section.trace).ok_or_else(|| {
                        broken("not basic blocks; expected a digest and OFFSET+SIZE@NANOSECONDS")
                    })?;
                }
                Some(words) if words.starts_with(digests::CONTINUATION) => {
                    let words = &words[digests::CONTINUATION.len()..];
                    digests::read(words, &mut section.trace)
                        .ok_or_else(|| broken("not two digests of a function"))?;
                }
                Some(header) if section.trace.events.is_empty() => {
                    read_header(header, section)
                        .ok_or_else(|| broken("a header with an unreadable value"))?;
                }
                Some(_) => {}
                None if line.trim_ascii().is_empty() => {}
                None => section.trace.events.push(read_event(line).ok_or_else(|| {
                    broken("not an event; expected nanoseconds, address, size, name, count and tick")
                })?),
            }
        } else if !line.is_empty() || rest.is_empty() {
            return Err(broken("not a recorded trace"));
        }
        offset += line.len() as u64 + 1;
    }
    for section in &sections {
        check_draw(&section.trace).map_err(|what| Error::malformed(section.start, what))?;
    }
    let cut = (!rest.is_empty()).then_some(lines.len() as u64);
    Ok(completeness::checked(sections, cut))
}

/// The complete lines, and the rest without a line end, whose missing part is unknown.
fn whole_lines(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
    bytes.split_at(end)
}

/// Rejects a threshold that the trace itself would not have passed: no draw makes one, and an edited file could use it to
/// outweigh, or push out, all other traces.
fn check_draw(trace: &Trace) -> std::result::Result<(), &'static str> {
    let Some(draw) = trace.draw else { return Ok(()) };
    match trace.identity {
        None => Err("a trace of a sample has no identity"),
        Some(identity) if draw.can_hold(identity, trace.weight) => Ok(()),
        Some(_) => Err("a trace that its sample cannot have kept"),
    }
}

/// `None` when a known key has an unreadable value.
fn read_header(header: &[u8], section: &mut Section) -> Option<()> {
    let trace = &mut section.trace;
    let Some(colon) = header.iter().position(|&byte| byte == b':') else { return Some(()) };
    let (key, value) = (header[..colon].trim_ascii(), header[colon + 1..].trim_ascii());
    match key {
        b"image" => trace.image.path = Some(PathBuf::from(OsString::from_vec(unescape(value)?))),
        b"build-id" => trace.image.build_id = Some(decode(value).filter(|bytes| !bytes.is_empty())?),
        b"run" => trace.run = decimal(value)?,
        b"process" => trace.process = Some(decimal(value)?),
        b"identity" => trace.identity = Some(Identity(hexadecimal_u128(value)?)),
        b"sample" => trace.draw = Some(read_draw(value)?),
        b"events" => section.stated_events = Some(decimal(value)?),
        b"blocks" => section.stated_blocks = Some(decimal(value)?),
        b"trace" => section.part = Some(Part::read(value)?),
        b"left-running" => trace.left_running = decimal(value)?,
        b"weight" => trace.weight = decimal(value)?,
        b"evidence" => trace.evidence = Evidence::from_name(std::str::from_utf8(value).ok()?)?,
        b"program" => trace.command = vec![unescape(value)?],
        b"argument" => trace.command.push(unescape(value)?),
        _ => {}
    }
    Some(())
}

fn read_event(line: &[u8]) -> Option<Event> {
    let mut columns = line.split(u8::is_ascii_whitespace).filter(|column| !column.is_empty());
    let nanoseconds = optional(columns.next()?, decimal)?;
    let location = optional(columns.next()?, location)?;
    let size = optional(columns.next()?, decimal)?;
    let name = optional(columns.next()?, unescape)?.map(Name::from);
    let count = optional(columns.next().unwrap_or(b"-"), decimal)?;
    let tick = optional(columns.next().unwrap_or(b"-"), decimal)?;
    if columns.next().is_some() {
        return None;
    }
    let (location, name) = match (location, name) {
        (Some(location), name) => (location, name),
        (None, Some(name)) => (Location::Name(name), None),
        (None, None) => return None,
    };
    Some(Event { location, name, size, nanoseconds, count, tick, blocks: None, digest: None })
}

/// The second column: a function's address, or another location after a word and a colon.
fn location(word: &[u8]) -> Option<Location> {
    let of = |prefix: &[u8]| word.strip_prefix(prefix).and_then(prefixed_hexadecimal);
    if let Some(address) = prefixed_hexadecimal(word) {
        return Some(Location::Image(Address(address)));
    }
    if let Some(address) = of(b"inside:") {
        return Some(Location::Inside(Address(address)));
    }
    if let Some(address) = of(b"runtime:") {
        return Some(Location::Runtime(RuntimeAddress(address)));
    }
    if let Some(hash) = of(b"md5:") {
        return Some(Location::NameHash(NameHash::Md5(hash)));
    }
    let id = u32::try_from(of(b"gcc:")?).ok()?;
    Some(Location::NameHash(NameHash::GccProfileId(id)))
}

/// `-` means unknown; anything else must be readable.
fn optional<T>(column: &[u8], read: impl Fn(&[u8]) -> Option<T>) -> Option<Option<T>> {
    if column == b"-" { Some(None) } else { read(column).map(Some) }
}

/// Capacity, seed and threshold, the last `-` when no trace was left out.
fn read_draw(value: &[u8]) -> Option<Draw> {
    let mut words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let capacity = decimal(words.next()?)?;
    let seed = decimal(words.next()?)?;
    let threshold = optional(words.next()?, hexadecimal_u128)?.map(Priority);
    let strata = match words.next() {
        None => Strata::Image,
        Some(COMMAND_STRATA) => Strata::Command,
        Some(_) => return None,
    };
    words.next().is_none().then_some(Draw { capacity, strata, seed, threshold })
}

/// Exactly 32 digits.
fn hexadecimal_u128(word: &[u8]) -> Option<u128> {
    Some(u128::from_be_bytes(decode(word)?.try_into().ok()?))
}
