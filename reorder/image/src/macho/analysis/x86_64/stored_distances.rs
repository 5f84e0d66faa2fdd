//! Keeps functions between which data holds distances: see [`crate::stored_distances`].

use std::collections::BTreeSet;
use std::ops::Range;

use super::X86Context;
use super::fields::Use;
use super::walk::Walk;
use crate::decoded_atom::DecodedAtom;
use crate::pins::{Pin, PinReason};
use crate::stored_distances::{DistanceSearch, NamedAddresses};
use reorder_base::address::Address;

/// Adds to `decoded` the functions between which data that `atom` names holds distances. Pointers are not followed.
pub(super) fn keep(
    context: &X86Context<'_>,
    atom: &Range<Address>,
    walk: &Walk<'_>,
    decoded: &mut DecodedAtom,
) {
    let is_start = |address: Address| context.starts.binary_search(&address).is_ok();
    let named = |uses: &[Use]| -> BTreeSet<Address> {
        let fields = walk.fields.iter().filter(|field| uses.contains(&field.used));
        fields.map(|field| field.target).collect()
    };
    let mut bases = named(&[Use::Take]);
    bases.retain(|base| is_start(*base));
    let mut places = named(&[Use::Take, Use::Memory]);
    places.retain(|place| !context.is_code(*place));
    let search = DistanceSearch {
        image: context.file,
        text: context.file.text().range(),
        is_start: &is_start,
        is_other: &|_, _| false,
    };
    let size = atom.end.distance_from(atom.start);
    let Some(found) = search.distances(&NamedAddresses { bases, places, size }) else {
        decoded.pin.get_or_insert(Pin { reason: PinReason::ComputedAddress, evidence: atom.start });
        decoded.calls_anything = true;
        return;
    };
    for distances in found {
        let functions = distances.reached.into_iter().chain([distances.base]);
        let (own, others): (Vec<_>, Vec<_>) = functions.partition(|function| atom.contains(function));
        if !own.is_empty() {
            let pin = Pin { reason: PinReason::ComputedAddress, evidence: distances.table };
            decoded.pin.get_or_insert(pin);
        }
        decoded.summed.extend(others);
    }
}
