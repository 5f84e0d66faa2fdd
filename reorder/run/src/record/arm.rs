//! Plants the breakpoints of one mapped segment in one batch.
//!
//! The pages that hold function starts are read, compared with the file, patched in a copy and written back, in
//! large pieces: two system calls per quarter of a megabyte instead of two per function.

use std::io;
use std::ops::Range;

use super::image::{CodeSegment, TracedImage};
use super::memory::{Mapping, ProcessMemory};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_system::arch::BREAKPOINT;

/// A range of memory that holds an image's breakpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArmedRange {
    /// In memory.
    pub(super) memory: Range<u64>,
    /// Address in memory minus address in the image; wraps.
    pub(super) bias: u64,
    /// Which of the traced images.
    pub(super) image: usize,
    /// Which of its executable segments.
    pub(super) segment: usize,
}

impl ArmedRange {
    /// The addresses in the image.
    pub(super) fn in_image(&self) -> Range<Address> {
        let address = |place: u64| Address(place.wrapping_sub(self.bias));
        address(self.memory.start)..address(self.memory.end)
    }

    /// Where `address` is in memory.
    pub(super) fn place(&self, address: Address) -> u64 {
        address.0.wrapping_add(self.bias)
    }
}

/// Pages are read and written in pieces of at most this size, so that the copies stay in the cache.
const MAX_PIECE: u64 = 256 << 10;
const PAGE: u64 = 4096;

/// The ranges of `mapping` with code of `image`, the traced image number `index`.
pub(super) fn ranges(image: &TracedImage, index: usize, mapping: &Mapping) -> Vec<ArmedRange> {
    let in_memory = |(segment, code): (usize, &CodeSegment)| {
        let range = mapped_part(code, mapping)?;
        let bias = mapping.start.wrapping_sub(mapping.offset).wrapping_add(code.offset);
        let bias = bias.wrapping_sub(code.address.0);
        let place = |address: Address| address.0.wrapping_add(bias);
        Some(ArmedRange { memory: place(range.start)..place(range.end), bias, image: index, segment })
    };
    image.segments.iter().enumerate().filter_map(in_memory).collect()
}

/// Plants a breakpoint at every function start of `image` in `armed` whose number is `wanted`.
///
/// # Errors
/// When the memory cannot be written, or does not hold what the file holds.
pub(super) fn arm(
    memory: &ProcessMemory,
    image: &TracedImage,
    armed: &ArmedRange,
    wanted: impl Fn(usize) -> bool + Copy,
) -> Result<()> {
    let mut buffer = Vec::new();
    for piece in pieces(starts_in(image, &armed.in_image(), wanted), &armed.in_image()) {
        let place = armed.place(piece.start);
        let expected = image.code(armed.segment, &piece);
        buffer.resize(expected.len(), 0);
        memory.read(place, &mut buffer).map_err(|error| refused(image, error))?;
        if buffer != expected {
            return Err(differs(image, &piece, &buffer, expected));
        }
        for start in starts_in(image, &piece, wanted) {
            let place = start.distance_from(piece.start) as usize;
            buffer[place..place + BREAKPOINT.len()].copy_from_slice(&BREAKPOINT);
        }
        memory.write(place, &buffer).map_err(|error| refused(image, error))?;
    }
    Ok(())
}

/// Removes every breakpoint of `armed` that is still there.
///
/// Memory that is gone has none. Where the memory has other contents by now, `is_mapped` tells whether an address still
/// belongs to the image, which the program has then changed, or to code that may have its own breakpoints.
///
/// # Errors
/// When the system refuses.
pub(super) fn disarm(
    memory: &ProcessMemory,
    image: &TracedImage,
    armed: &ArmedRange,
    is_mapped: impl Fn(u64) -> bool,
) -> io::Result<()> {
    let mut buffer = Vec::new();
    for piece in pieces(image.places_in(&armed.in_image()), &armed.in_image()) {
        let place = armed.place(piece.start);
        let expected = image.code(armed.segment, &piece);
        buffer.resize(expected.len(), 0);
        match memory.read(place, &mut buffer) {
            Err(error) if is_unmapped(&error) => continue,
            read => read?,
        }
        let armed_code = buffer.clone();
        restore(&mut buffer, image, &piece, expected, |_| true);
        if buffer != expected {
            buffer.copy_from_slice(&armed_code);
            restore(&mut buffer, image, &piece, expected, |start| is_mapped(armed.place(start)));
        }
        if buffer != armed_code {
            match memory.write(place, &buffer) {
                Err(error) if is_unmapped(&error) => {}
                written => written?,
            }
        }
    }
    Ok(())
}

/// Whether the memory at `start` of the image holds the image's code, with or without its breakpoints.
pub(super) fn holds_code(
    memory: &ProcessMemory,
    image: &TracedImage,
    armed: &ArmedRange,
    start: Address,
) -> bool {
    let piece = start..start.plus(COMPARED).min(armed.in_image().end);
    let expected = image.code(armed.segment, &piece);
    let mut buffer = vec![0; expected.len()];
    let is_read = memory.read(armed.place(start), &mut buffer).is_ok();
    restore(&mut buffer, image, &piece, expected, |_| true);
    // A breakpoint alone does not identify the code.
    is_read && expected.len() > BREAKPOINT.len() && buffer == expected
}

/// Bytes that are compared to recognise code: many instructions, and one system call.
const COMPARED: u64 = 32;

/// Restores the original bytes, those of `expected`, under breakpoints in `code`, a copy of `piece`, at the places that are
/// `wanted`.
pub(super) fn restore(
    code: &mut [u8],
    image: &TracedImage,
    piece: &Range<Address>,
    expected: &[u8],
    wanted: impl Fn(Address) -> bool,
) {
    for address in image.places_in(piece) {
        let place = address.distance_from(piece.start) as usize;
        let bytes = place..place + BREAKPOINT.len();
        if code[bytes.clone()] == BREAKPOINT && wanted(address) {
            code[bytes.clone()].copy_from_slice(&expected[bytes]);
        }
    }
}

/// Whether the system refuses because nothing is mapped there, or no memory is left at all.
pub(super) fn is_unmapped(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EFAULT))
        || matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero)
}

/// The addresses of `segment` that `mapping` holds.
fn mapped_part(segment: &CodeSegment, mapping: &Mapping) -> Option<Range<Address>> {
    let mapping_end = mapping.offset.saturating_add(mapping.length);
    let segment_end = segment.offset + segment.size;
    let first = segment.offset.max(mapping.offset);
    let end = segment_end.min(mapping_end);
    let address = |offset: u64| segment.address.plus(offset - segment.offset);
    (first < end).then(|| address(first)..address(end))
}

/// The starts whose numbers are `wanted` and whose breakpoints lie in `range` with all their bytes.
fn starts_in(
    image: &TracedImage,
    range: &Range<Address>,
    wanted: impl Fn(usize) -> bool,
) -> impl Iterator<Item = Address> {
    let end = range.end;
    let starts = image.starts.from(range.start).filter(move |number| wanted(*number));
    let starts = starts.map(|number| image.starts[number].address);
    starts.take_while(move |start| start.plus(BREAKPOINT.len() as u64) <= end)
}

/// Ranges of whole pages, cut off at the ends of `range`, that together hold all of `places`, which lie in it and ascend,
/// and no page without one.
fn pieces(places: impl Iterator<Item = Address>, range: &Range<Address>) -> Vec<Range<Address>> {
    let mut pieces: Vec<Range<Address>> = Vec::new();
    for place in places {
        let page = Address(place.0 & !(PAGE - 1));
        let wanted = page.max(range.start)..page.plus(PAGE).min(range.end);
        match pieces.last_mut() {
            Some(piece) if wanted.start < piece.end => {}
            Some(piece)
                if wanted.start == piece.end && wanted.end.distance_from(piece.start) <= MAX_PIECE =>
            {
                piece.end = wanted.end;
            }
            _ => pieces.push(wanted),
        }
    }
    pieces
}

fn refused(image: &TracedImage, error: io::Error) -> Error {
    Error::io(image.path(), error).with_hint(
        "the system does not let the recorder change the program's memory; run it as the same user, outside of a \
         sandbox",
    )
}

fn differs(image: &TracedImage, piece: &Range<Address>, memory: &[u8], file: &[u8]) -> Error {
    let same = memory.iter().zip(file).take_while(|(memory, file)| memory == file).count();
    Error::usage(format!("the memory at {} differs from the file", piece.start.plus(same as u64)))
        .in_file(image.path())
        .with_hint("the file was replaced, or the program changes its own code and cannot be traced")
}
