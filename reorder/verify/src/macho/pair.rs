//! The two images, the map between them, and what the checks share.

use std::ops::Range;

use super::super::aarch64::Images;
use super::super::report::{Check, Difference, Findings};
use super::super::unchanged::Claims;
use super::view::MachView;
use crate::moves::AddressMoves;
use reorder_base::address::{Address, NewAddress};

/// Both images and the map: the input of every check.
#[derive(Clone, Copy)]
pub(super) struct MachPair<'a> {
    /// The image before relocation.
    pub(super) old: &'a MachView<'a>,
    /// The image after it.
    pub(super) new: &'a MachView<'a>,
    /// Where the atoms of `__text` went.
    pub(super) moves: &'a AddressMoves,
}

/// What the checks produce: findings, and the bytes of the new file that they claim.
pub(super) struct Ledger<'a> {
    /// Differences and counts.
    pub(super) findings: &'a mut Findings,
    /// Bytes that checks have compared.
    pub(super) claims: &'a mut Claims,
}

impl MachPair<'_> {
    /// Where the byte at `address` is in the new image; `None` for padding that is no longer there.
    pub(super) fn mapped(&self, address: Address) -> Option<NewAddress> {
        match self.is_text(address) {
            true => self.moves.containing(address).map(|_| self.moves.map(address)),
            false => Some(NewAddress(address.0)),
        }
    }

    /// Whether `address` lies in `__text`.
    pub(super) fn is_text(&self, address: Address) -> bool {
        self.old.text().range().contains(&address.0)
    }

    /// Whether an atom starts exactly at `address`, and moved.
    pub(super) fn is_moved_start(&self, address: Address) -> bool {
        let atom = self.moves.containing(address);
        atom.is_some_and(|atom| atom.old_start == address && atom.is_moved())
    }

    /// Whether `found` is where `address` went.
    pub(super) fn follows(&self, address: Address, found: NewAddress) -> bool {
        self.mapped(address) == Some(found)
    }

    /// The expected new address for `address`, for messages.
    pub(super) fn expected(&self, address: Address) -> String {
        self.mapped(address).map_or_else(|| "a place that is still there".to_owned(), |new| new.to_string())
    }
}

impl Images for MachPair<'_> {
    fn follows(&self, address: u64, found: u64) -> bool {
        MachPair::follows(self, Address(address), NewAddress(found))
    }

    fn expected(&self, address: u64) -> String {
        MachPair::expected(self, Address(address))
    }

    fn is_text(&self, address: u64) -> bool {
        MachPair::is_text(self, Address(address))
    }

    fn data_between(&self, start: u64, end: u64) -> &[Range<u64>] {
        self.old.data_between(start, end)
    }
}

impl Ledger<'_> {
    /// Adds a difference unless `found` is where `address` went. The field lies at `offset` in the new file.
    pub(super) fn follows(
        &mut self,
        pair: MachPair<'_>,
        check: Check,
        offset: usize,
        place: &str,
        address: Address,
        found: NewAddress,
    ) {
        if !pair.follows(address, found) {
            let expected = pair.expected(address);
            self.findings.differs(Difference::new(
                check,
                Some(offset as u64),
                place,
                expected,
                found.to_string(),
            ));
        }
    }
}
