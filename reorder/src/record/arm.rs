//! Plants the breakpoints of one mapped segment in one batch.
//!
//! The pages that hold function starts are read, compared with the file, patched in a copy and written back, in
//! large pieces: two system calls per megabyte instead of two per function.

use std::ops::Range;

use super::arch_x86_64::BREAKPOINT;
use super::image::{CodeSegment, TracedImage};
use super::memory::{Mapping, ProcessMemory};
use crate::address::Address;
use crate::error::{Error, Result};

/// A range of memory that holds an image's breakpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ArmedRange {
    /// In memory.
    pub(super) memory: Range<u64>,
    /// Address in memory minus address in the image; wraps.
    pub(super) bias: u64,
    /// Which of the traced images.
    pub(super) image: usize,
}

/// Pages are read and written in pieces of at most this size, so that copies stay in the cache.
const LARGEST_PIECE: u64 = 1 << 20;
const PAGE: u64 = 4096;

/// Plants a breakpoint at every function start of `image` that `mapping` maps.
///
/// # Errors
/// When the memory cannot be written, or does not hold what the file holds.
pub(super) fn arm(
    memory: &ProcessMemory,
    image: &TracedImage,
    index: usize,
    mapping: &Mapping,
) -> Result<Vec<ArmedRange>> {
    let mut armed = Vec::new();
    for segment in &image.segments {
        let Some(range) = mapped_part(segment, mapping) else { continue };
        let bias = mapping.start.wrapping_sub(mapping.offset).wrapping_add(segment.offset);
        let bias = bias.wrapping_sub(segment.address.0);
        for piece in pieces(image, &range) {
            plant(memory, image, segment, bias, piece)?;
        }
        armed.push(ArmedRange {
            memory: range.start.0.wrapping_add(bias)..range.end.0.wrapping_add(bias),
            bias,
            image: index,
        });
    }
    Ok(armed)
}

/// The addresses of `segment` that `mapping` holds.
fn mapped_part(segment: &CodeSegment, mapping: &Mapping) -> Option<Range<Address>> {
    let mapping_end = mapping.offset.saturating_add(mapping.length);
    let segment_end = segment.offset + segment.bytes.len() as u64;
    let first = segment.offset.max(mapping.offset);
    let end = segment_end.min(mapping_end);
    let address = |offset: u64| segment.address.plus(offset - segment.offset);
    (first < end).then(|| address(first)..address(end))
}

/// Ranges of whole pages that together hold every start in `range`, none of it twice, without long gaps.
fn pieces(image: &TracedImage, range: &Range<Address>) -> Vec<Range<Address>> {
    let first = image.starts.partition_point(|start| start.address < range.start);
    let mut pieces: Vec<Range<Address>> = Vec::new();
    for start in image.starts[first..].iter().take_while(|start| start.address < range.end) {
        let page = start.address.0 & !(PAGE - 1);
        let wanted = Address(page).max(range.start)..Address(page + PAGE).min(range.end);
        match pieces.last_mut() {
            Some(piece) if wanted.start < piece.end => {}
            Some(piece)
                if wanted.start == piece.end && wanted.end.distance_from(piece.start) <= LARGEST_PIECE =>
            {
                piece.end = wanted.end;
            }
            _ => pieces.push(wanted),
        }
    }
    pieces
}

fn plant(
    memory: &ProcessMemory,
    image: &TracedImage,
    segment: &CodeSegment,
    bias: u64,
    piece: Range<Address>,
) -> Result<()> {
    let place = piece.start.0.wrapping_add(bias);
    let within = |address: Address| address.distance_from(segment.address) as usize;
    let expected = &segment.bytes[within(piece.start)..within(piece.end)];
    let mut bytes = vec![0; expected.len()];
    let file = image.identity.path.as_deref().unwrap_or(std::path::Path::new("image"));
    let refused = |error| {
        Error::io(file, error).with_hint(
            "the system does not let the recorder change the program's memory; run it as the same user, outside of a \
             sandbox",
        )
    };
    memory.read(place, &mut bytes).map_err(refused)?;
    if let Some(difference) = (0..bytes.len()).find(|&at| bytes[at] != expected[at]) {
        return Err(Error::usage(format!(
            "the memory at {} differs from the file",
            piece.start.plus(difference as u64)
        ))
        .in_file(file)
        .with_hint("the file was replaced or the program changes its own code; it cannot be traced"));
    }
    let first = image.starts.partition_point(|start| start.address < piece.start);
    for start in image.starts[first..].iter().take_while(|start| start.address < piece.end) {
        bytes[start.address.distance_from(piece.start) as usize] = BREAKPOINT;
    }
    memory.write(place, &bytes).map_err(refused)
}
