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
    let fields = walk.fields.iter().filter(|field| matches!(field.used, Use::Take | Use::Memory));
    let named: BTreeSet<Address> = fields.map(|field| field.target).collect();
    let (bases, places) = named.into_iter().partition(|address| context.is_code(*address));
    let search = DistanceSearch {
        image: context.file,
        text: context.file.text().range(),
        is_start: &is_start,
        is_other: &|_, _| false,
        budget: &context.sums,
    };
    // If there are too many, the whole image is refused.
    let found = search.distances(&NamedAddresses { bases, places }).unwrap_or_default();
    for (function, evidence) in found {
        if atom.contains(&function) {
            decoded.pin.get_or_insert(Pin { reason: PinReason::ComputedAddress, evidence });
        } else {
            decoded.summed.push(function);
        }
    }
}
