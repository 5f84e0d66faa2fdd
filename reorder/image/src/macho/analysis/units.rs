//! Units: groups of atoms that keep their distances, and whether they may move.

use std::ops::Range;

use super::atoms::{AtomIndex, Atoms};
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// Neighbouring atoms that move as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// First byte.
    pub start: Address,
    /// One past the last byte.
    pub end: Address,
    /// Why it stays, if it does.
    pub pin: Option<Pin>,
}

impl Unit {
    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.end.distance_from(self.start)
    }

    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> Range<Address> {
        self.start..self.end
    }
}

/// If a tie spans more atoms than this, its ends are pinned instead of moving all of them as one.
const MAX_TIED: u32 = 16;

/// Pins and ties, as they are found.
pub(super) struct Obligations<'atoms> {
    atoms: &'atoms Atoms,
    pins: Vec<Option<Pin>>,
    /// For each atom, the last one that it is tied to.
    tied_to: Vec<u32>,
}

impl<'atoms> Obligations<'atoms> {
    pub(super) fn new(atoms: &'atoms Atoms) -> Self {
        Self { atoms, pins: vec![None; atoms.len()], tied_to: (0..atoms.len() as u32).collect() }
    }

    /// Pins the atom; of several reasons the least is kept, whatever the order in which they are found.
    pub(super) fn pin(&mut self, atom: AtomIndex, pin: Pin) {
        let place = &mut self.pins[atom.0 as usize];
        *place = Some(place.map_or(pin, |known| known.min(pin)));
    }

    /// Pins the atom that holds `address`.
    pub(super) fn pin_at(&mut self, address: Address, reason: PinReason, evidence: Address) {
        if let Some(atom) = self.atoms.containing(address) {
            self.pin(atom, Pin { reason, evidence });
        }
    }

    /// Makes all atoms from the first to the last one unit; pins them if they are too many.
    pub(super) fn tie_all(&mut self, first: AtomIndex, last: AtomIndex, evidence: Address) {
        self.extend(first, last);
        if last.0.saturating_sub(first.0) > MAX_TIED {
            self.pin(first, Pin { reason: PinReason::ShortReference, evidence });
        }
    }

    /// Pins all atoms from the first to the last.
    pub(super) fn pin_all(&mut self, first: AtomIndex, last: AtomIndex, pin: Pin) {
        self.extend(first, last);
        self.pin(first, pin);
    }

    /// A unit stays if one of its atoms does, so one number and one pin suffice for any number of atoms.
    fn extend(&mut self, first: AtomIndex, last: AtomIndex) {
        let tied = &mut self.tied_to[first.0 as usize];
        *tied = (*tied).max(last.0);
    }

    /// Makes two atoms keep their distance: the atoms between move with them, or may move alone if both ends are pinned.
    pub(super) fn tie(&mut self, first: AtomIndex, second: AtomIndex, evidence: Address) {
        let (low, high) = (first.0.min(second.0), first.0.max(second.0));
        if high - low > MAX_TIED {
            let pin = Pin { reason: PinReason::ShortReference, evidence };
            self.pin(first, pin);
            self.pin(second, pin);
        } else {
            self.extend(AtomIndex(low), AtomIndex(high));
        }
    }

    /// Whether the atom is tied to another one.
    pub(super) fn is_tied(&self, atom: AtomIndex) -> bool {
        let index = atom.0 as usize;
        let from = index.saturating_sub(MAX_TIED as usize);
        self.tied_to[index] > atom.0 || self.tied_to[from..index].iter().any(|end| *end >= atom.0)
    }

    /// The units, in address order: a unit stays if one of its atoms does.
    pub(super) fn units(&self) -> Vec<Unit> {
        let mut units: Vec<Unit> = Vec::new();
        let mut reach = 0;
        for index in 0..self.atoms.len() as u32 {
            let range = self.atoms.range(AtomIndex(index));
            let pin = self.pins[index as usize];
            match units.last_mut().filter(|_| index > 0 && index <= reach) {
                Some(unit) => {
                    unit.end = range.end;
                    unit.pin = match (unit.pin, pin) {
                        (Some(first), Some(second)) => Some(first.min(second)),
                        (first, second) => first.or(second),
                    };
                }
                None => units.push(Unit { start: range.start, end: range.end, pin }),
            }
            reach = reach.max(self.tied_to[index as usize]);
        }
        units
    }
}
