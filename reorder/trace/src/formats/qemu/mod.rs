//! QEMU's account of the blocks that it translates: `-d in_asm`.
//!
//! In: the log of user-mode emulation of any processor (`accel/tcg/translator.c`, `disas/disas.c`): each block when it
//! is translated, which is right before it runs for the first time; with `-d page` also where the program was loaded
//! (`linux-user/main.c`). Out: one trace of the program.
//!
//! ```text
//! start_code  0x0000004000001000
//! ----------------
//! IN: parse_args
//! 0x40000011b6:  48 83 ec 08              subq     $8, %rsp
//! ```
//!
//! Addresses are those of the process, symbols those of the program alone: blocks without one are libraries, stubs,
//! or a program without symbols.

mod placement;

use std::collections::HashSet;

use self::placement::Placement;
use super::image_traces::ImageTraces;
use super::lines::{lines, some_early_line, split_once};
use crate::{Event, ImageIdentity, Input, Location, Name, Note, Reading, Trace};
use reorder_base::address::RuntimeAddress;
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_base::numbers::prefixed_hexadecimal;

const COMMAND: &str = "qemu-x86_64 -d in_asm,nochain,page -D blocks.log PROGRAM ARGUMENTS (or the qemu-* of the \
                       program's processor)";

/// Whether it has a block's first line; a log starts with one unless other things are logged too.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    bytes.starts_with(b"host mmap_min_addr=0x")
        || some_early_line(bytes, |line| line == RULE)
            && some_early_line(bytes, |line| line.trim_ascii_end() == b"IN:" || line.starts_with(b"IN: "))
}

const RULE: &[u8] = b"----------------";

/// A block's start and the symbol of the function that it lies in.
pub(super) struct Block<'data> {
    address: Option<RuntimeAddress>,
    symbol: Option<&'data [u8]>,
}

/// The trace of the program.
///
/// # Errors
/// A log without any block, and one whose blocks have neither addresses nor symbols.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let log = Log::read(input.bytes);
    if log.blocks.is_empty() {
        return Err(Error::malformed(0, "the log has no translated block").with_hint(COMMAND));
    }
    let placement = Placement::find(&log, input.companions);
    let mut notes = Vec::new();
    let (image, events, outside) = match &placement {
        Some(placement) => {
            (placement.image.identity.clone(), placement.events(&log.blocks), "of the program")
        }
        None => (ImageIdentity::default(), unplaced(&log), "with a symbol"),
    };
    if placement.is_none() && input.companions.images().next().is_some() {
        notes.push(
            Note::new("no companion fits: none has the log's symbols at its addresses")
                .with_hint(Hint::companion("give the program that ran", "PROGRAM")),
        );
    }
    let left_out = events.iter().filter(|event| event.is_none()).count();
    if left_out > 0 {
        let all = log.blocks.len();
        notes.push(Note::new(format!(
            "{left_out} of {all} blocks are none {outside} and were left out: libraries, the loader, stubs"
        )));
    }
    let mut traces = ImageTraces::new();
    let start = || Trace { image: image.clone(), weight: 1, ..Trace::default() };
    let mut names: HashSet<Name> = HashSet::new();
    for event in events.into_iter().flatten() {
        // Without a place of the program in memory, later blocks of a function show by its name alone.
        let is_first = matches!(event.location, Location::Image(_))
            || event.symbol().is_none_or(|name| names.insert(name.into()));
        if is_first {
            traces.add((), start, event);
        }
    }
    let traces = traces.finish();
    if traces.is_empty() {
        return Err(
            Error::malformed(0, "no block has an address or a symbol of the program").with_hint(COMMAND)
        );
    }
    let has_names = traces.iter().flat_map(|trace| &trace.events).any(|event| event.symbol().is_some());
    if placement.is_none() && !has_names {
        notes.push(
            Note::new(
                "the program has no symbols, and nothing says where it was loaded: its blocks are known by \
                       addresses of the process",
            )
            .with_hint(Hint::companion(
                format!("log its place by {COMMAND}, and give the program"),
                "PROGRAM",
            )),
        );
    }
    Ok(Reading { traces, notes })
}

/// One event for each block, as far as it is known to be of the program.
fn unplaced(log: &Log<'_>) -> Vec<Option<Event>> {
    let has_symbols = log.blocks.iter().any(|block| block.symbol.is_some());
    let is_wanted = |block: &Block<'_>| match (log.code, block.address) {
        (Some((start, end)), Some(address)) => start <= address && address < end,
        _ => !has_symbols,
    };
    let event = |block: &Block<'_>| match (block.address, block.symbol) {
        (Some(address), Some(name)) => {
            Some(Event { name: Some(name.into()), ..Event::at(Location::Runtime(address)) })
        }
        (Some(address), None) => is_wanted(block).then(|| Event::at(Location::Runtime(address))),
        (None, Some(name)) => Some(Event::at(Location::Name(name.into()))),
        (None, None) => None,
    };
    log.blocks.iter().map(event).collect()
}

/// All that a log says.
#[derive(Default)]
pub(super) struct Log<'data> {
    blocks: Vec<Block<'data>>,
    /// From the first address to one past the last of the program's code.
    code: Option<(RuntimeAddress, RuntimeAddress)>,
}

impl<'data> Log<'data> {
    fn read(bytes: &'data [u8]) -> Self {
        let mut log = Self::default();
        let (mut start_code, mut end_code) = (None, None);
        // Whether the last block's address may still come.
        let mut is_open = false;
        for (_, line) in lines(bytes) {
            if let Some(symbol) = line.strip_prefix(b"IN:") {
                let symbol = symbol.trim_ascii();
                log.blocks.push(Block { address: None, symbol: (!symbol.is_empty()).then_some(symbol) });
                is_open = true;
            } else if line.is_empty() {
                is_open = false;
            } else if let Some((address, _)) = split_once(line, b":").filter(|_| is_open) {
                if let (Some(address), Some(block)) = (prefixed_hexadecimal(address), log.blocks.last_mut()) {
                    block.address = Some(RuntimeAddress(address));
                    is_open = false;
                }
            } else if let Some(address) = line.strip_prefix(b"start_code") {
                start_code = start_code.or(prefixed_hexadecimal(address.trim_ascii()));
            } else if let Some(address) = line.strip_prefix(b"end_code") {
                end_code = end_code.or(prefixed_hexadecimal(address.trim_ascii()));
            }
        }
        log.code = start_code.zip(end_code).map(|(start, end)| (RuntimeAddress(start), RuntimeAddress(end)));
        log
    }
}
