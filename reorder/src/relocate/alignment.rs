//! Which alignment the starts of functions need.
//!
//! Compilers align functions to 16 for speed, and so they stay while there is room. What programs rely on is less:
//! function pointers carry tags in their low bits (C++ uses one for member functions, some run-times two or three).
//! Code built for size is not aligned at all, has no padding, and fits only if nothing is asked beyond what its
//! functions whose addresses are taken have in common.

use crate::image::analysis::Analysis;
use crate::image::analysis::blocks::{Block, ORDINARY_ALIGNMENT, alignment};

/// What a new start keeps of the old one, as powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// While there is room.
    pub ordinary: u64,
    /// Always.
    pub least: u64,
}

/// Bits that a run-time may use in a function pointer: three.
const LARGEST_TAG: u64 = 8;

/// The alignment of each arena's functions.
pub fn alignments(analysis: &Analysis<'_>) -> Vec<Alignment> {
    (0..analysis.code.arenas.len() as u32).map(|arena| alignment_of(analysis, arena)).collect()
}

fn alignment_of(analysis: &Analysis<'_>, arena: u32) -> Alignment {
    let blocks: Vec<&Block> = analysis.partition.blocks.iter().filter(|block| block.arena == arena).collect();
    let aligned = blocks.iter().filter(|block| block.modulus >= ORDINARY_ALIGNMENT).count();
    // A sixteenth would be by chance; parts split off aligned functions are up to a third.
    if aligned * 2 >= blocks.len() {
        return Alignment { ordinary: ORDINARY_ALIGNMENT, least: LARGEST_TAG };
    }
    let taken = analysis.pointers.iter().map(|pointer| pointer.target).filter(|&target| {
        let block = analysis.partition.block_containing(target).map(|index| analysis.partition.block(index));
        block.is_some_and(|block| block.arena == arena && block.is_entry(target))
    });
    let shared = taken.map(|target| alignment(target, LARGEST_TAG)).min().unwrap_or(1);
    Alignment { ordinary: shared, least: shared }
}
