//! Lists written by programs that remove each of their own sleds at its first call (`scripts/xray-coverage`).
//!
//! In: one line for each function in order of first execution: its number, its address as stated in its image and, if the
//! program counted calls, their number. Out: one trace for each object.
//!
//! ```text
//! # xray coverage 1
//! # process 4711
//! # object 0 /tmp/demo
//! 8 0x246d0
//! 9 0x24760 3
//! ```
//!
//! Any line that starts with `#` may be missing. Numbers are those of XRay: bits 24 and up are the object.

use std::collections::BTreeMap;

use crate::formats::image_traces::{ImageTraces, image_at};
use crate::formats::lines::{lines, split_once};
use crate::{CompanionImage, Event, ImageIdentity, Input, Location, Note, Reading, Trace};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_base::numbers::{decimal, prefixed_hexadecimal};

const SIGNATURE: &[u8] = b"# xray coverage 1\n";

/// Whether the first line is the signature.
pub(crate) fn accepts_signed(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

/// Whether the first line that is not a comment has the form of an entry.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    let early = &bytes[..bytes.len().min(4096)];
    let first = lines(early).map(|(_, line)| line).find(|line| !line.is_empty() && !line.starts_with(b"#"));
    first.is_some_and(|line| Line::parse(line).is_some())
}

/// The trace of each object.
///
/// # Errors
/// The file lists no function.
pub(crate) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut process = None;
    let mut identities: BTreeMap<u32, ImageIdentity> = BTreeMap::new();
    let mut notes = Vec::new();
    let mut found = Vec::new();
    let (mut damaged, mut first_damage) = (0u64, 0);
    for (offset, line) in lines(input.bytes) {
        if let Some(comment) = line.strip_prefix(b"# ") {
            if let Some(number) = comment.strip_prefix(b"process ") {
                process = decimal(number.trim_ascii());
            } else if let Some((number, path)) =
                comment.strip_prefix(b"object ").and_then(|rest| split_once(rest, b" "))
            {
                identities.extend(decimal(number).map(|number: u32| (number, image_at(path))));
            } else if let Some(lost) = comment.strip_prefix(b"lost ") {
                let lost = String::from_utf8_lossy(lost).into_owned();
                notes.push(Note::at(offset, format!("the program had no room to record {lost} functions")));
            }
        } else if let Some(line) = Line::parse(line) {
            found.push(line);
        } else if !line.is_empty() && !line.starts_with(b"#") {
            damaged += 1;
            if damaged == 1 {
                first_damage = offset;
            }
        }
    }
    if found.is_empty() {
        return Err(Error::malformed(input.bytes.len() as u64, "no function was executed").with_hint(
            "build with clang -fxray-instrument -fxray-instruction-threshold=1 and link the coverage handler in",
        ));
    }
    if damaged > 0 {
        let what =
            format!("{damaged} lines are not a number and an address and were left out; this is the first");
        notes.push(Note::at(first_damage, what));
    }
    let images: Vec<CompanionImage<'_>> = input.companions.images().collect();
    let companion = companion_of(&found, &images);
    if companion.is_none() && !images.is_empty() {
        notes.push(Note::new("no companion has the addresses of the program's functions").with_hint(
            Hint::companion("give the program that was built with XRay and wrote the list", "PROGRAM"),
        ));
    }
    let mut traces = ImageTraces::new();
    for line in &found {
        let object = line.id >> OBJECT_SHIFT;
        let address = Address(line.address);
        let image = companion.filter(|_| object == 0);
        let identity = image.map(|image| image.identity.clone()).or_else(|| identities.get(&object).cloned());
        let start = || Trace { image: identity.unwrap_or_default(), process, weight: 1, ..Trace::default() };
        let name = image.and_then(|image| image.name_at(address));
        traces.add(object, start, Event { name, count: line.calls, ..Event::at(Location::Image(address)) });
    }
    Ok(Reading { traces: traces.finish(), notes })
}

const OBJECT_SHIFT: u32 = 24;

/// The companion that has functions at the most addresses that the file lists for the program.
fn companion_of<'images, 'data>(
    found: &[Line],
    images: &'images [CompanionImage<'data>],
) -> Option<&'images CompanionImage<'data>> {
    let starts = |image: &CompanionImage<'_>| {
        let of_program = found.iter().filter(|line| line.id >> OBJECT_SHIFT == 0);
        of_program.map(|line| image.name_at(Address(line.address))).filter(Option::is_some).count()
    };
    let best = images.iter().max_by_key(|image| starts(image))?;
    (starts(best) > 0).then_some(best)
}

/// One function.
struct Line {
    id: u32,
    address: u64,
    calls: Option<u64>,
}

impl Line {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (id, address) = (decimal(words.next()?)?, prefixed_hexadecimal(words.next()?)?);
        let calls = match words.next() {
            Some(word) => Some(decimal(word)?),
            None => None,
        };
        words.next().is_none().then_some(Self { id, address, calls })
    }
}
