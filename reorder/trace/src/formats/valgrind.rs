//! Valgrind's account of the blocks that it translates: `--trace-flags=10000000`.
//!
//! In: what valgrind prints when it translates a block of code, which it does right before the block runs for the
//! first time (`coregrind/m_translate.c`). Out: one trace for each object of each process.
//!
//! ```text
//! ==== SB 2240 (evchecks 10369) [tid 1] 0x1091b6 parse_args /tmp/demo+0x11b6
//!         0x1091B6:  subq $8,%rsp
//!               ------ IMark(0x1091B6, 4, 0) ------
//! ```
//!
//! The number after the object is the address as stated in it. A block header names where a block starts only, so a
//! block that goes on at the target of a call hides the callee; instruction marks show where that happened.

use super::image_traces::{ImageTraces, image_at, is_demangled, words};
use super::lines::{lines, some_early_line, split_last, split_once};
use crate::{Event, Input, Location, Note, Reading, Trace};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::numbers::{decimal, hexadecimal};

const COMMAND: &str = "valgrind --tool=none --demangle=no --vex-guest-chase=no --trace-flags=10000000 \
                       --trace-notbelow=0 --log-file=blocks.%p PROGRAM ARGUMENTS";

const HEADER: &[u8] = b"==== SB ";

/// Whether it has a block's header, or is the log of a run without any.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    some_early_line(bytes, |line| Block::parse(line).is_some() || is_banner(line))
}

/// The first line of the tool that only translates.
fn is_banner(line: &[u8]) -> bool {
    let rest = line.strip_prefix(b"==").and_then(|rest| split_once(rest, b"== "));
    rest.is_some_and(|(process, words)| decimal::<u32>(process).is_some() && words.starts_with(b"Nulgrind"))
}

/// The trace of each object.
///
/// # Errors
/// A log without any block.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut log = Log::default();
    let mut traces = ImageTraces::new();
    for (_, line) in lines(input.bytes) {
        log.line(line, &mut traces);
    }
    if log.blocks == 0 {
        return Err(
            Error::malformed(0, "valgrind's log has no line of a translated block").with_hint(COMMAND)
        );
    }
    Ok(Reading { traces: traces.finish(), notes: log.notes() })
}

/// What has been seen so far.
#[derive(Default)]
struct Log {
    command: Vec<Vec<u8>>,
    process: Option<u32>,
    /// Counts how often numbering started again.
    run: u32,
    last_number: Option<u64>,
    blocks: u64,
    out_of_sequence: u64,
    /// Headers that could not be read.
    broken: u64,
    without_object: u64,
    demangled: bool,
    marks: u64,
    chased: u64,
    /// Where the next instruction of the block starts if nothing is chased.
    next_instruction: Option<u64>,
    is_chased: bool,
}

impl Log {
    fn line(&mut self, line: &[u8], traces: &mut ImageTraces<(u32, Vec<u8>)>) {
        if let Some((at, length)) = instruction_mark(line) {
            self.marks += 1;
            if self.next_instruction.is_some_and(|expected| expected != at) && !self.is_chased {
                self.is_chased = true;
                self.chased += 1;
            }
            self.next_instruction = Some(at.wrapping_add(length));
        } else if line == b"IRSB {" {
            // The same instructions follow a second time.
            self.next_instruction = None;
        } else if let Some((before, rest)) = split_once(line, HEADER) {
            // The program may have written the beginning of a line to the same terminal.
            match Block::parse(&line[before.len()..]) {
                Some(block) => self.block(&block, traces),
                None if rest.is_empty() => {}
                None => self.broken += 1,
            }
        } else if let Some((start, command)) = split_once(line, b"== Command: ") {
            self.process = start.strip_prefix(b"==").and_then(decimal);
            self.command = words(command);
        }
    }

    fn block(&mut self, block: &Block<'_>, traces: &mut ImageTraces<(u32, Vec<u8>)>) {
        if block.number == 0 {
            self.run += 1;
        } else if self.last_number.is_some_and(|last| block.number <= last) {
            self.out_of_sequence += 1;
        }
        self.last_number = Some(block.number);
        self.blocks += 1;
        (self.next_instruction, self.is_chased) = (None, false);
        let Some(object) = block.object else {
            self.without_object += 1;
            return;
        };
        let demangled = block.symbol.is_some_and(|(name, _)| is_demangled(name) && name != BELOW_MAIN);
        self.demangled |= demangled;
        let (location, name) = match block.symbol {
            Some((name, inside)) => (
                Location::Image(Address(block.address.wrapping_sub(inside))),
                (!is_demangled(name)).then(|| name.into()),
            ),
            None => (Location::Inside(Address(block.address)), None),
        };
        let event = Event { name, tick: Some(block.number), ..Event::at(location) };
        let start = || Trace {
            image: image_at(object),
            run: self.run.max(1),
            process: self.process,
            command: self.command.clone(),
            weight: 1,
            ..Trace::default()
        };
        traces.add((self.run, object.to_vec()), start, event);
    }

    fn notes(&self) -> Vec<Note> {
        let mut notes = Vec::new();
        let mut note = |count: u64, message: String| {
            if count > 0 {
                notes.push(Note::new(message).with_hint(COMMAND));
            }
        };
        let blocks = self.blocks;
        note(
            self.chased,
            format!(
                "{} of {blocks} blocks continue after a jump or a call: functions that start inside of one are late or \
                 missing, because valgrind ran without --vex-guest-chase=no",
                self.chased
            ),
        );
        note(
            u64::from(self.marks == 0),
            "the log has block headers alone, which do not say whether blocks continue after calls; the order holds \
             if valgrind ran with --vex-guest-chase=no"
                .to_owned(),
        );
        note(
            self.out_of_sequence,
            format!(
                "{} of {blocks} blocks are numbered out of sequence: a forked process wrote into the same log, and \
                 its first executions are mixed with those of its parent",
                self.out_of_sequence
            ),
        );
        note(self.broken, format!("{} block headers are damaged and were left out", self.broken));
        note(
            u64::from(self.demangled),
            "some names are not symbols but their readable form; these functions \
             are known by address only"
                .to_owned(),
        );
        if self.without_object > 0 {
            let outside = self.without_object;
            notes.push(Note::new(format!("{outside} of {blocks} blocks lie in no object and were left out")));
        }
        notes
    }
}

/// Start and length of an instruction: `------ IMark(0x401AB70, 3, 0) ------`.
fn instruction_mark(line: &[u8]) -> Option<(u64, u64)> {
    let rest = line.trim_ascii_start().strip_prefix(b"------ IMark(0x")?;
    let (address, rest) = split_once(rest, b", ")?;
    Some((hexadecimal(address)?, decimal(split_once(rest, b",")?.0)?))
}

/// What valgrind calls the code that calls `main`.
const BELOW_MAIN: &[u8] = b"(below main)";

/// The header of one block.
struct Block<'data> {
    number: u64,
    /// Name of the function and how far inside of it the block starts.
    symbol: Option<(&'data [u8], u64)>,
    object: Option<&'data [u8]>,
    /// As stated in the object.
    address: u64,
}

impl<'data> Block<'data> {
    fn parse(line: &'data [u8]) -> Option<Self> {
        let (number, rest) = split_once(line.strip_prefix(HEADER)?, b" (evchecks ")?;
        let (_, rest) = split_once(rest, b"] 0x")?;
        let (_, place) = split_once(rest, b" ")?;
        let (place, address) = split_last(place, b"+0x")?;
        let (symbol, object) = symbol_and_object(place)?;
        Some(Self {
            number: decimal(number)?,
            symbol: (symbol != b"UNKNOWN_FUNCTION").then(|| name_and_offset(symbol)),
            object: (object != b"UNKNOWN_OBJECT").then_some(object),
            address: hexadecimal(address)?,
        })
    }
}

/// Readable names and paths both may have blanks; the path starts at the first `/` or `.` after one.
fn symbol_and_object(place: &[u8]) -> Option<(&[u8], &[u8])> {
    [&b" /"[..], b" ./"]
        .into_iter()
        .find_map(|start| split_once(place, start).map(|(symbol, _)| (symbol, &place[symbol.len() + 1..])))
        .or_else(|| split_last(place, b" "))
}

fn name_and_offset(symbol: &[u8]) -> (&[u8], u64) {
    split_last(symbol, b"+").and_then(|(name, offset)| Some((name, decimal(offset)?))).unwrap_or((symbol, 0))
}
