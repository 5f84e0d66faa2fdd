//! Decodes atoms until all places are known where control enters one in its middle.
//!
//! What one atom refers to may be the middle of another, whose registers are then unknown at that place: it is decoded again
//! with this entry. Each round adds places of which there are finitely many; two rounds are typical.

use std::collections::BTreeSet;
use std::ops::Range;

use rayon::prelude::*;

use crate::code_reference::{AtomReferences, CodeReference, PackedReference};
use crate::decoded_atom::DecodedAtom;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// Rounds of finding entries in the middle of functions.
pub(super) const MAX_ROUNDS: usize = 16;

/// How one atom is decoded.
pub(super) trait AtomDecoder: Sync {
    /// The atom at `range`, entered at `entries` besides its start, and its references packed.
    fn decode(&self, range: Range<Address>, entries: &[Address]) -> (DecodedAtom, Box<[PackedReference]>);

    /// The atom stays, with all that its bytes may refer to.
    fn keep(&self, range: Range<Address>) -> DecodedAtom;
}

/// Decodes the atoms, sorted and disjoint, of an image at `base`, of which some `entries` are known.
pub(super) fn decode_atoms(
    atoms: &[Range<Address>],
    base: Address,
    mut entries: BTreeSet<Address>,
    decoder: &impl AtomDecoder,
) -> (Vec<DecodedAtom>, AtomReferences) {
    let containing = |target: Address| {
        let index = atoms.partition_point(|atom| atom.start <= target).checked_sub(1)?;
        (target < atoms[index].end).then_some(index)
    };
    let is_inner = |target: Address| containing(target).is_some_and(|atom| atoms[atom].start != target);
    entries.retain(|entry| is_inner(*entry));
    let decode = |index: usize, entries: &BTreeSet<Address>| {
        let range = atoms[index].clone();
        let inner: Vec<Address> = entries.range(range.start.plus(1)..range.end).copied().collect();
        decoder.decode(range, &inner)
    };
    let (mut decoded, packed): (Vec<DecodedAtom>, Vec<Box<[PackedReference]>>) =
        (0..atoms.len()).into_par_iter().with_min_len(16).map(|index| decode(index, &entries)).unzip();
    let mut code = AtomReferences::new(base, packed);
    let mut changed: Vec<usize> = (0..atoms.len()).collect();
    for round in 0..=MAX_ROUNDS {
        let targets = changed.par_iter().with_min_len(256).flat_map_iter(|&index| {
            let referenced = code.of_atom(index, atoms[index].start).map(|reference| reference.target);
            referenced.chain(decoded[index].ties.iter().copied())
        });
        let mut new: Vec<Address> =
            targets.filter(|target| is_inner(*target) && !entries.contains(target)).collect();
        if new.is_empty() {
            break;
        }
        new.par_sort_unstable();
        new.dedup();
        changed = new.iter().filter_map(|target| containing(*target)).collect();
        changed.dedup();
        entries.extend(new);
        if round == MAX_ROUNDS {
            // What was decoded without its last entries was not understood.
            for &index in &changed {
                decoded[index] = decoder.keep(atoms[index].clone());
                code.replace(index, Box::default());
            }
            break;
        }
        let again: Vec<_> = changed.par_iter().map(|&index| decode(index, &entries)).collect();
        for (&index, (atom, references)) in changed.iter().zip(again) {
            decoded[index] = atom;
            code.replace(index, references);
        }
    }
    (decoded, code)
}

/// The atom with its references packed. One that refers to something far outside of the image is hardly code: nothing of it
/// is rewritten, and what it refers to in `text` stays.
pub(super) fn pack(
    mut atom: DecodedAtom,
    start: Address,
    base: Address,
    text: &Range<Address>,
) -> (DecodedAtom, Box<[PackedReference]>) {
    let references: Vec<CodeReference> = std::mem::take(&mut atom.references);
    let packed: Option<Box<_>> = references.iter().map(|reference| reference.pack(start, base)).collect();
    let packed = packed.unwrap_or_else(|| {
        atom.pin = Some(Pin { reason: PinReason::NotDecodable, evidence: start });
        let others = references.iter().map(|reference| reference.target);
        atom.possible_targets.extend(others.filter(|target| text.contains(target)));
        Box::default()
    });
    (atom, packed)
}
