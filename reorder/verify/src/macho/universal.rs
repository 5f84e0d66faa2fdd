//! Universal files: the images for several processors, and the header that lists them.
//!
//! Source: `mach-o/fat.h` of Apple's cctools. The header is big-endian.

use std::ops::Range;

use super::super::bytes::{big_endian_u32_at, range};
use super::super::report::{Check, Difference, Findings};
use reorder_base::error::{Error, Result};

const UNIVERSAL: u32 = 0xcafe_babe;
const UNIVERSAL_64: u32 = 0xcafe_babf;

/// Where one image lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// `cputype` and `cpusubtype`.
    pub(super) processor: (u32, u32),
    /// The alignment's logarithm of base 2.
    pub(super) alignment: u32,
    pub(super) range: Range<usize>,
}

impl Slice {
    /// As linkers name the processor.
    pub(super) fn title(&self) -> String {
        const ARM64E: u32 = 2;
        match self.processor {
            (0x0100_000c, variant) if variant & 0x00ff_ffff == ARM64E => "arm64e".to_owned(),
            (0x0100_000c, _) => "arm64".to_owned(),
            (0x0100_0007, _) => "x86_64".to_owned(),
            (kind, variant) => format!("processor {kind:#x} {variant:#x}"),
        }
    }
}

/// The images of a universal file; `None` for a file that is itself an image.
///
/// # Errors
/// A damaged header, and images that lie outside of the file or overlap.
pub(super) fn slices(bytes: &[u8]) -> Result<Option<Vec<Slice>>> {
    let magic = big_endian_u32_at(bytes, 0).unwrap_or(0);
    if magic != UNIVERSAL && magic != UNIVERSAL_64 {
        return Ok(None);
    }
    let entry_size = if magic == UNIVERSAL { 20 } else { 32 };
    let broken = |at: usize| Error::malformed(at as u64, "the header of the universal file is damaged");
    let count = big_endian_u32_at(bytes, 4).ok_or_else(|| broken(4))? as usize;
    if count > bytes.len() / entry_size {
        return Err(broken(4));
    }
    let mut slices = Vec::with_capacity(count);
    let mut end = 8 + count * entry_size;
    for at in (0..count).map(|index| 8 + index * entry_size) {
        let word = |distance: usize| big_endian_u32_at(bytes, at + distance).ok_or_else(|| broken(at));
        let long = |distance: usize| {
            Ok::<u64, Error>(u64::from(word(distance)?) << 32 | u64::from(word(distance + 4)?))
        };
        let (offset, size, alignment) = match magic {
            UNIVERSAL => (u64::from(word(8)?), u64::from(word(12)?), word(16)?),
            _ => (long(8)?, long(16)?, word(24)?),
        };
        if range(bytes, offset, size).is_none() || alignment > 20 || offset % (1 << alignment) != 0 {
            return Err(broken(at));
        }
        let (start, stop) = (offset as usize, (offset + size) as usize);
        slices.push(Slice { processor: (word(0)?, word(4)?), alignment, range: start..stop });
    }
    let mut by_place: Vec<&Slice> = slices.iter().collect();
    by_place.sort_by_key(|slice| slice.range.start);
    for slice in by_place {
        if slice.range.start < end {
            return Err(Error::malformed(
                slice.range.start as u64,
                "two images of the universal file overlap",
            ));
        }
        end = slice.range.end;
    }
    Ok(Some(slices))
}

/// The same processors in the same order, with the same alignments.
pub(super) fn check_slices(old: &[Slice], new: &[Slice], findings: &mut Findings) -> bool {
    let shape = |slices: &[Slice]| -> Vec<((u32, u32), u32)> {
        slices.iter().map(|slice| (slice.processor, slice.alignment)).collect()
    };
    let is_same = shape(old) == shape(new);
    if !is_same {
        findings.differs(Difference::new(
            Check::Correspondence,
            Some(0),
            "the header of the universal file",
            "the same processors with the same alignments",
            "others",
        ));
    }
    is_same
}
