//! Callgrind's profiles.
//!
//! In: `callgrind.out.PID` (its manual, "Callgrind Format Specification"). Out: one trace for each object.
//!
//! ```text
//! ob=(5) /tmp/demo          the object of the functions that follow
//! fn=(558) load_config      a function; the costs of its lines follow
//! 9 3
//! cob=(3) /lib/libc.so.6    the object of the next callee, if it is another
//! cfn=(550) util_log        a callee
//! calls=1 -1                how often, and where it starts
//! ```
//!
//! Strings are written once and then referred to by number. Numbers are given when a function is first met during
//! the run, so they give the order of first execution; a file without them holds counts alone.

use std::collections::HashMap;

use super::image_traces::{ImageTraces, image_at, is_demangled, words};
use super::lines::{lines, some_early_line, split_once};
use crate::{Event, Evidence, Input, Location, Note, Reading, Trace};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::numbers::{decimal, prefixed_hexadecimal};

const COMMAND: &str = "valgrind --tool=callgrind --demangle=no --dump-instr=yes PROGRAM ARGUMENTS";

/// Whether it starts as callgrind's files do since 2013, or has the lines that older ones begin with.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    bytes.starts_with(b"# callgrind format")
        || some_early_line(bytes, |line| line.starts_with(b"creator: callgrind"))
}

/// The trace of each object.
///
/// # Errors
/// A file without functions.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut profile = Profile::default();
    for (_, line) in lines(input.bytes) {
        profile.line(line);
    }
    if profile.functions.is_empty() {
        return Err(
            Error::malformed(0, "the profile has no functions: nothing was collected").with_hint(COMMAND)
        );
    }
    Ok(profile.finish())
}

/// One function of one object.
struct Function<'data> {
    /// When it was met first.
    number: Option<u64>,
    name: &'data [u8],
    object: Option<&'data [u8]>,
    calls: u64,
    /// The lowest address of code that ran in it, as stated in the object.
    lowest: Option<u64>,
}

/// What has been read so far.
#[derive(Default)]
struct Profile<'data> {
    process: Option<u32>,
    command: Vec<Vec<u8>>,
    objects: HashMap<u64, &'data [u8]>,
    functions: Vec<Function<'data>>,
    by_number: HashMap<u64, usize>,
    by_name: HashMap<(Option<&'data [u8]>, &'data [u8]), usize>,
    /// Of the functions whose costs are listed, and of the next callee.
    object: Option<&'data [u8]>,
    callee_object: Option<&'data [u8]>,
    current: Option<usize>,
    callee: Option<usize>,
    /// Whether lines of costs start with an address; the last one, which the next may be relative to.
    has_addresses: bool,
    last_address: u64,
    /// Numbers without a string.
    dangling: u64,
}

impl<'data> Profile<'data> {
    fn line(&mut self, line: &'data [u8]) {
        match line.first() {
            Some(b'0'..=b'9' | b'+' | b'-' | b'*') => return self.costs(line),
            Some(_) => {}
            None => return,
        }
        if let Some((key, value)) = split_once(line, b"=") {
            self.assignment(key, value);
        } else if let Some((key, value)) = split_once(line, b":") {
            match key {
                b"pid" => self.process = decimal(value.trim_ascii()),
                b"cmd" => self.command = words(value),
                b"positions" => self.has_addresses = value.trim_ascii().starts_with(b"instr"),
                _ => {}
            }
        }
    }

    fn assignment(&mut self, key: &[u8], value: &'data [u8]) {
        match key {
            b"ob" => {
                self.object = self.object_of(value);
                self.callee_object = None;
            }
            b"cob" => self.callee_object = self.object_of(value),
            b"fn" => {
                self.current = self.function(value, self.object);
                self.callee_object = None;
            }
            b"cfn" => self.callee = self.function(value, self.callee_object.or(self.object)),
            b"calls" => {
                let calls = value.split(u8::is_ascii_whitespace).next().and_then(decimal).unwrap_or(0u64);
                if let Some(callee) = self.callee.take() {
                    let function = &mut self.functions[callee];
                    function.calls = function.calls.saturating_add(calls);
                }
                self.callee_object = None;
            }
            _ => {}
        }
    }

    fn object_of(&mut self, value: &'data [u8]) -> Option<&'data [u8]> {
        let (number, name) = numbered(value);
        let name = match (number, name) {
            (Some(number), None) => self.objects.get(&number).copied(),
            (Some(number), Some(name)) => {
                self.objects.insert(number, name);
                Some(name)
            }
            (None, name) => name,
        };
        self.dangling += u64::from(name.is_none());
        Some(name.unwrap_or(UNKNOWN))
    }

    fn function(&mut self, value: &'data [u8], object: Option<&'data [u8]>) -> Option<usize> {
        let (number, name) = numbered(value);
        let known = match (number, name) {
            (Some(number), _) => self.by_number.get(&number),
            (None, Some(name)) => self.by_name.get(&(object, name)),
            (None, None) => None,
        };
        if let Some(&known) = known {
            return Some(known);
        }
        let Some(name) = name else {
            self.dangling += 1;
            return None;
        };
        let index = self.functions.len();
        self.functions.push(Function { number, name, object, calls: 0, lowest: None });
        match number {
            Some(number) => self.by_number.insert(number, index),
            None => self.by_name.insert((object, name), index),
        };
        Some(index)
    }

    fn costs(&mut self, line: &[u8]) {
        let Some(position) = line.split(u8::is_ascii_whitespace).next().filter(|_| self.has_addresses) else {
            return;
        };
        let address = match position.split_first() {
            Some((b'+', distance)) => {
                decimal(distance).and_then(|ahead| self.last_address.checked_add(ahead))
            }
            Some((b'-', distance)) => decimal(distance).and_then(|back| self.last_address.checked_sub(back)),
            Some((b'*', _)) => Some(self.last_address),
            _ => prefixed_hexadecimal(position),
        };
        let Some(address) = address else { return };
        self.last_address = address;
        if let Some(current) = self.current {
            let lowest = &mut self.functions[current].lowest;
            *lowest = Some(lowest.map_or(address, |lowest| lowest.min(address)));
        }
    }

    fn finish(mut self) -> Reading {
        let is_ordered = self.functions.iter().all(|function| function.number.is_some());
        if is_ordered {
            self.functions.sort_by_key(|function| function.number);
        } else {
            self.functions.sort_by_key(|function| std::cmp::Reverse(function.calls));
        }
        let mut traces = ImageTraces::new();
        let (mut outside, mut demangled) = (0u64, false);
        for function in &self.functions {
            let Some(object) = function.object.filter(|object| *object != UNKNOWN) else {
                outside += 1;
                continue;
            };
            demangled |= function.lowest.is_none()
                && is_demangled(function.symbol())
                && function.symbol() != BELOW_MAIN;
            let start = || Trace {
                image: image_at(object),
                process: self.process,
                command: self.command.clone(),
                weight: 1,
                evidence: if is_ordered { Evidence::Exact } else { Evidence::Counts },
                ..Trace::default()
            };
            traces.add(object, start, function.event());
        }
        let notes = [
            (!is_ordered).then(|| {
                Note::new(
                    "the profile has counts but no order, because its strings are not numbered: callgrind ran with \
                     --compress-strings=no",
                )
                .with_hint(COMMAND)
            }),
            demangled.then(|| {
                Note::new("some names are not symbols but their readable form, which may not be found in an image")
                    .with_hint(COMMAND)
            }),
            (outside > 0).then(|| {
                let all = self.functions.len();
                Note::new(format!("{outside} of {all} functions lie in no known object and were left out"))
            }),
            (self.dangling > 0).then(|| {
                let dangling = self.dangling;
                Note::new(format!("{dangling} numbers stand for no name; what they belong to was left out"))
            }),
        ];
        Reading { traces: traces.finish(), notes: notes.into_iter().flatten().collect() }
    }
}

impl Function<'_> {
    /// The name without the depth of recursion and the callers that callgrind may append.
    fn symbol(&self) -> &[u8] {
        split_once(self.name, b"'").map_or(self.name, |(symbol, _)| symbol)
    }

    fn event(&self) -> Event {
        let symbol = self.symbol();
        // Functions without a symbol are named after an address in them.
        let stated = prefixed_hexadecimal(symbol);
        let location = match stated.or(self.lowest) {
            Some(address) => Location::Inside(Address(address)),
            None => Location::Name(symbol.into()),
        };
        let is_symbol = stated.is_none() && !is_demangled(symbol);
        let name = (is_symbol && !matches!(location, Location::Name(_))).then(|| symbol.into());
        let count = (self.calls > 0).then_some(self.calls);
        Event { name, count, tick: self.number, ..Event::at(location) }
    }
}

/// The code that calls `main`, whatever its symbol is.
const BELOW_MAIN: &[u8] = b"(below main)";

/// How callgrind spells what it does not know.
const UNKNOWN: &[u8] = b"???";

/// `(5) name`, `(5)` or `name`.
fn numbered(value: &[u8]) -> (Option<u64>, Option<&[u8]>) {
    let value = value.trim_ascii();
    // `(below main)` starts with a bracket too, but not with a number.
    let parts = value.strip_prefix(b"(").and_then(|rest| split_once(rest, b")"));
    match parts.and_then(|(number, name)| Some((decimal(number)?, name.trim_ascii()))) {
        Some((number, name)) => (Some(number), (!name.is_empty()).then_some(name)),
        None => (None, (!value.is_empty()).then_some(value)),
    }
}
