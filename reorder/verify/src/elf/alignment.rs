//! Functions whose addresses are taken keep their alignment.
//!
//! Programs keep flags in the low bits of such addresses, and no image states in which bits. An image only states a bound:
//! linkers give a section the largest alignment that any function in it requested (`sh_addralign`). A function that has this
//! alignment may be the one that requested it, and a function with less may have requested what it has.
//!
//! Where most functions of a section have less alignment than compilers give for speed, a function has more by chance, so
//! only the common alignment is demanded. If the section states more than that, a function whose address has the stated
//! alignment may be the one that requested it.

use std::ops::Range;

use crate::elf::view::{ElfView, SectionView};
use crate::moves::{AddressMoves, Move};
use reorder_base::address::Address;

/// The alignment that compilers give to functions for speed.
const FOR_SPEED: u64 = 16;

/// The largest alignment that functions request: a page.
const MAX_ALIGNMENT: u64 = 4096;

/// The share of a section's functions that counts as most of them: numerator, denominator.
const COMMON_SHARE: (usize, usize) = (3, 4);

/// The alignment that functions of the old image may rely on, by section; outside of these, only parity.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alignments {
    /// In header order.
    sections: Vec<SectionAlignment>,
}

#[derive(Clone, Debug)]
struct SectionAlignment {
    range: Range<Address>,
    /// `sh_addralign`, at most [`MAX_ALIGNMENT`].
    stated: u64,
    /// The alignment of most of its functions, at most [`FOR_SPEED`].
    common: u64,
}

impl Alignments {
    /// The alignments in the old image.
    pub(crate) fn of(old: &ElfView<'_>, moves: &AddressMoves) -> Self {
        let code = old.sections.iter().filter(|section| section.is_code());
        Self { sections: code.map(|section| SectionAlignment::of(section, moves)).collect() }
    }

    /// What the new start of a function whose address is taken must be a multiple of.
    pub(crate) fn demanded(&self, range: &Move) -> u64 {
        let start = range.old_start;
        // The lowest bit may have a meaning in every section.
        let parity = alignment(start, 2);
        let section = self.sections.iter().find(|section| section.range.contains(&start));
        section.map_or(parity, |section| section.demanded(start).max(parity))
    }
}

impl SectionAlignment {
    fn of(section: &SectionView<'_>, moves: &AddressMoves) -> Self {
        let range = Address(section.address)..Address(section.end());
        let starts = moves.as_slice();
        let first = starts.partition_point(|function| function.old_start < range.start);
        let end = starts.partition_point(|function| function.old_start < range.end);
        let functions = &starts[first..end];
        let is_common = |level: &u64| {
            let aligned = functions.iter().filter(|function| function.old_start.0.is_multiple_of(*level));
            aligned.count() * COMMON_SHARE.1 >= functions.len() * COMMON_SHARE.0
        };
        let common = [FOR_SPEED, 8, 4, 2].into_iter().find(is_common).unwrap_or(1);
        Self { range, stated: section.alignment.clamp(1, MAX_ALIGNMENT), common }
    }

    fn demanded(&self, start: Address) -> u64 {
        let shown = alignment(start, self.stated);
        if self.common < FOR_SPEED && (self.stated <= FOR_SPEED || shown < FOR_SPEED) {
            return alignment(start, self.common);
        }
        shown
    }
}

/// The largest power of two, at most `limit`, that `address` is a multiple of.
fn alignment(address: Address, limit: u64) -> u64 {
    1_u64.checked_shl(address.0.trailing_zeros()).map_or(limit, |shown| shown.min(limit))
}

#[cfg(test)]
mod tests {
    use super::{Address, FOR_SPEED, SectionAlignment, alignment};

    #[test]
    fn what_the_header_states_bounds_what_is_demanded() {
        let demanded = |stated, common, start| {
            let range = Address(0)..Address(u64::MAX);
            SectionAlignment { range, stated, common }.demanded(Address(start))
        };
        assert_eq!(demanded(16, FOR_SPEED, 0x1040), 16);
        assert_eq!(demanded(64, FOR_SPEED, 0x1040), 64);
        assert_eq!(demanded(64, FOR_SPEED, 0x1020), 32);
        assert_eq!(demanded(4096, FOR_SPEED, 0x1100), 256);
        assert_eq!(demanded(4096, FOR_SPEED, 0x3000), 4096);
        assert_eq!(demanded(16, 4, 0x3000), 4);
        assert_eq!(demanded(64, 4, 0x3040), 64);
        assert_eq!(demanded(64, 4, 0x3020), 32);
        assert_eq!(demanded(64, 4, 0x3008), 4);
        assert_eq!(demanded(16, 1, 0x3001), 1);
    }

    #[test]
    fn address_zero_has_every_alignment() {
        let shown = |address, limit| alignment(Address(address), limit);
        assert_eq!((shown(0, 64), shown(0x18, 64), shown(0x3001, 2)), (64, 8, 1));
    }
}
