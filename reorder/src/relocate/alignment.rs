//! Which alignment the starts of functions need.
//!
//! Compilers align functions to 16 for speed, and so they stay while there is room. What programs rely on is less:
//! function pointers carry tags in their low bits (C++ uses one for member functions, some run-times two or three).
//! Code built for size is not aligned at all, has no padding, and fits only if nothing is asked beyond what its
//! functions whose addresses are taken have in common.

use rayon::prelude::*;

use crate::address::Address;
use crate::image::analysis::Analysis;
use crate::image::analysis::blocks::{Block, ORDINARY_ALIGNMENT, alignment};
use crate::image::analysis::fields::CodeFields;
use crate::image::analysis::units::{UnitIndex, unit_containing};
use crate::image::decode::x86_64::FieldKind;
use crate::image::functions::FunctionTable;

/// What a new start keeps of the old one, as powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// While there is room.
    pub ordinary: u64,
    /// Always.
    pub least: u64,
}

impl Alignment {
    /// The same for what must not come from an even address to an odd one.
    #[must_use]
    pub fn even(self) -> Self {
        Self { ordinary: self.ordinary.max(2), least: self.least.max(2) }
    }
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

/// For each unit, whether something takes an address in it: its lowest bit may then have a meaning. Pointers to member functions
/// of C++ say by it whether the function is virtual (Itanium C++ ABI, section 2.3).
pub fn addressed_units(analysis: &Analysis<'_>, functions: &FunctionTable<'_>) -> Vec<bool> {
    let unit_of = |target: Address| unit_containing(&analysis.units, target);
    let pointers = analysis.pointers.par_iter().filter_map(|pointer| unit_of(pointer.target));
    let absolute = analysis.absolute_fields.par_iter().filter_map(|field| unit_of(field.target));
    let own = analysis.partition.blocks.par_iter().filter(|block| block.takes_own_address);
    let own = own.filter_map(|block| unit_of(block.start));
    let mut addressed: Vec<UnitIndex> = pointers.chain(absolute).chain(own).collect();
    let exported = functions.dynamic_symbols.iter().filter(|symbol| symbol.defining_section().is_some());
    addressed.extend(exported.filter_map(|symbol| unit_of(symbol.value)));
    // Instructions of AArch64 are words, so nothing in it is odd.
    if let CodeFields::X86_64(fields) = &analysis.fields {
        let all = fields.of(0..analysis.partition.blocks.len() as u32).par_iter();
        let taken = all.filter(|field| field.kind == FieldKind::AddressOf);
        addressed.par_extend(taken.filter_map(|field| unit_of(field.target(&analysis.code))));
    }
    let mut is_addressed = vec![false; analysis.units.len()];
    addressed.into_iter().for_each(|unit| is_addressed[unit.0 as usize] = true);
    is_addressed
}
