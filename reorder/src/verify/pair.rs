//! The two images, the map between them, and what the checks share.

use super::elf_view::ElfView;
use super::recover::AddressMoves;
use super::report::Findings;
use super::unchanged::Claims;
use crate::address::Address;

/// Both images and the recovered map: the input of every check.
#[derive(Clone, Copy)]
pub(super) struct ImagePair<'a> {
    /// The image before relocation.
    pub(super) old: &'a ElfView<'a>,
    /// The image after it.
    pub(super) new: &'a ElfView<'a>,
    /// Where functions went.
    pub(super) moves: &'a AddressMoves,
}

/// What the checks produce: findings, and the bytes they answered for.
pub(super) struct Ledger<'a> {
    /// Differences and counts.
    pub(super) findings: &'a mut Findings,
    /// Bytes that need no other check.
    pub(super) claims: &'a mut Claims,
}

impl ImagePair<'_> {
    /// Where a stated address must point in the new image.
    pub(super) fn mapped(&self, address: u64) -> u64 {
        self.moves.map(Address(address)).0
    }

    /// Whether `found` is where the jump target `target` went. The end of a function may also be read as a place
    /// of that function.
    pub(super) fn is_target(&self, target: u64, found: u64) -> bool {
        self.mapped(target) == found
            || self.moves.ending_at(Address(target)).is_some_and(|range| range.new_end().0 == found)
    }
}
