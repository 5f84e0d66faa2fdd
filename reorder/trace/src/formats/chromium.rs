//! Chromium's dumps of instrumented functions (`profile-hitmap-PID-TIME.txt_PHASE`), and those of any other hook of
//! `-finstrument-function-entry-bare` that writes the same.
//!
//! ```text
//! 4641                                    one decimal offset per line, in the order of first calls
//! 4776
//!
//! {"total_calls_count": "7", "call_graph": [            or the graph of calls, sorted by offset: `index` rises with
//!   {"index": "4", "callee_offset": "4641",             the order of first calls
//!    "caller_and_count": [{"caller_offset": "99", "count": "7"}]}]}
//! ```
//!
//! An offset is that of a return address inside the function, from the symbol `linker_script_start_of_text` on, or from
//! the start of the image where there is no such symbol. Addresses of Thumb code have their lowest bit set.

use object::{Architecture, Object as _, ObjectSegment as _, ObjectSymbol as _};
use serde_json::Value;

use super::first_seen::FirstSeen;
use super::lines::lines;
use crate::{CompanionImage, Event, Evidence, ImageIdentity, Input, Location, Note, Reading, Trace};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_base::numbers::decimal;

/// Whether the first lines are decimal numbers alone, or the keys of a graph.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    const LOOKED_AT: usize = 32;
    let beginning = &bytes[..bytes.len().min(16 << 10)];
    let mut numbers =
        lines(beginning).map(|(_, line)| line.trim_ascii()).filter(|line| !line.is_empty()).peekable();
    let are_numbers =
        numbers.peek().is_some() && numbers.take(LOOKED_AT).all(|line| decimal::<u64>(line).is_some());
    are_numbers || is_graph(beginning)
}

fn is_graph(bytes: &[u8]) -> bool {
    const KEY: &[u8] = b"\"call_graph\"";
    bytes.trim_ascii_start().starts_with(b"{") && bytes.windows(KEY.len()).any(|window| window == KEY)
}

/// One trace; its image is the companion, if there is one.
///
/// # Errors
/// A graph that is not JSON, and dumps without a single offset.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut notes = Vec::new();
    let base = Base::find(input, &mut notes);
    let offsets =
        if is_graph(input.bytes) { graph(input.bytes, &mut notes)? } else { list(input.bytes, &mut notes) };
    if offsets.is_empty() {
        return Err(Error::malformed(0, "a dump without offsets")
            .with_hint("dump after the program has started, from a build with use_order_profiling=true"));
    }
    let mut first = FirstSeen::default();
    for offset in offsets {
        first.add(base.event(&offset));
    }
    let trace = Trace {
        image: base.identity,
        weight: 1,
        evidence: Evidence::Exact,
        events: first.into_events(),
        ..Trace::default()
    };
    Ok(Reading { traces: vec![trace], notes })
}

struct Offset {
    value: u64,
    tick: Option<u64>,
    count: Option<u64>,
}

/// What offsets count from.
#[derive(Default)]
struct Base {
    identity: ImageIdentity,
    address: u64,
    is_thumb: bool,
}

impl Base {
    fn find(input: &Input<'_>, notes: &mut Vec<Note>) -> Self {
        let mut first = None;
        for image in input.companions.images() {
            if let Some(start) = text_start(&image) {
                return Self::in_image(&image, start);
            }
            first = first.or_else(|| Some(Self::in_image(&image, image_start(&image))));
        }
        first.unwrap_or_else(|| {
            notes
                .push(Note::new("offsets are taken from the start of an image that is loaded at 0").with_hint(
                Hint::companion(
                    "give the instrumented image, in which Chromium counts from linker_script_start_of_text",
                    "IMAGE",
                ),
            ));
            Self::default()
        })
    }

    fn in_image(image: &CompanionImage<'_>, address: u64) -> Self {
        let is_thumb = image.object.architecture() == Architecture::Arm;
        Self { identity: image.identity.clone(), address, is_thumb }
    }

    fn event(&self, offset: &Offset) -> Event {
        let offset_of_code = if self.is_thumb { offset.value & !1 } else { offset.value };
        let location = Location::Inside(Address(self.address).plus(offset_of_code));
        Event { tick: offset.tick, count: offset.count, ..Event::at(location) }
    }
}

fn text_start(image: &CompanionImage<'_>) -> Option<u64> {
    let mut symbols = image.object.symbols().chain(image.object.dynamic_symbols());
    symbols
        .find(|symbol| symbol.name_bytes() == Ok(b"linker_script_start_of_text"))
        .map(|symbol| symbol.address())
}

fn image_start(image: &CompanionImage<'_>) -> u64 {
    image.object.segments().map(|segment| segment.address()).min().unwrap_or_default()
}

fn list(bytes: &[u8], notes: &mut Vec<Note>) -> Vec<Offset> {
    let mut odd = 0u64;
    let mut first_odd = None;
    let mut offsets = Vec::new();
    for (at, line) in lines(bytes) {
        match decimal(line.trim_ascii()) {
            _ if line.trim_ascii().is_empty() => {}
            Some(value) => offsets.push(Offset { value, tick: None, count: None }),
            None => {
                odd += 1;
                first_odd.get_or_insert(at);
            }
        }
    }
    notes.extend(first_odd.map(|at| Note::at(at, format!("{odd} lines are not offsets and were left out"))));
    offsets
}

fn graph(bytes: &[u8], notes: &mut Vec<Note>) -> Result<Vec<Offset>> {
    let graph: Value = serde_json::from_slice(bytes).map_err(|error| {
        let at = offset_of(bytes, error.line(), error.column());
        Error::malformed(at, format!("a call graph that is not JSON: {error}"))
            .with_hint("the dump was cut: let the program finish it")
    })?;
    let entries = graph.get("call_graph").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut offsets: Vec<Offset> = entries.iter().filter_map(callee).collect();
    offsets.sort_by_key(|offset| (offset.tick, offset.value));
    let odd = entries.len() - offsets.len();
    if odd > 0 {
        notes.push(Note::new(format!(
            "{odd} entries of the call graph have no index or offset and were left out"
        )));
    }
    Ok(offsets)
}

fn callee(entry: &Value) -> Option<Offset> {
    let callers =
        entry.get("caller_and_count").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let counts = callers.iter().filter_map(|caller| number(caller.get("count")?));
    let count = counts.fold(0u64, u64::saturating_add);
    Some(Offset {
        value: number(entry.get("callee_offset")?)?,
        tick: Some(number(entry.get("index")?)?),
        count: Some(count).filter(|count| *count > 0),
    })
}

/// Chromium writes all numbers as strings, because JSON's are not wide enough.
fn number(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

fn offset_of(bytes: &[u8], line: usize, column: usize) -> u64 {
    let start = lines(bytes).nth(line.saturating_sub(1)).map_or(0, |(offset, _)| offset);
    (start + column as u64).min(bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::damage::survives;

    #[test]
    fn damage_is_told_or_survived() {
        survives(
            "Chromium offsets",
            include_bytes!("../../../../tests/profiles/lists/cyg-entry-bare.offsets.txt"),
        );
        survives("Chromium offsets",
            br#"{"call_graph": [{"index": "4", "callee_offset": "32", "caller_and_count": [{"count": "2"}]}]}"#);
    }
}
