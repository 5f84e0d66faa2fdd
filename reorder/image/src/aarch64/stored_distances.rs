//! Functions between which data holds distances: what AArch64 code names.

use std::collections::BTreeMap;
use std::ops::Range;

use super::context::{AddressUse, CodeContext, addresses_named};
use super::{Builder, from_first_instruction};
use crate::pins::PinReason;
use crate::stored_distances::{DistanceSearch, NamedAddresses, stored_address, words_read};
use reorder_base::address::Address;

impl Builder<'_, '_> {
    /// Pins the functions to which the words of a table lead from a function, and that one too, where the atom names both.
    pub(super) fn keep_stored_distances(&mut self) {
        for (function, table) in functions_at_distances(self.context, self.atom.clone()) {
            match self.atom.contains(&function) {
                true => self.pin(PinReason::ComputedAddress, table),
                false => self.result.summed.push(function),
            }
        }
    }
}

/// The functions that tables lead to which the code in `range` names, and those from which they lead, each with a table. If there are
/// too many, the whole image is refused.
pub(crate) fn functions_at_distances(
    context: &CodeContext<'_>,
    range: Range<Address>,
) -> BTreeMap<Address, Address> {
    let search = DistanceSearch {
        image: context.image,
        text: context.text.clone(),
        is_start: &|address| context.is_start(address),
        is_other: &|_, _| false,
        budget: &context.sums,
    };
    search.distances(&named_addresses(context, from_first_instruction(range))).unwrap_or_default()
}

fn named_addresses(context: &CodeContext<'_>, range: Range<Address>) -> NamedAddresses {
    let is_code = |address: &Address| context.text.contains(address);
    let mut named = NamedAddresses::default();
    // The large code model loads addresses from literals, and other code from the global offset table.
    let loaded =
        |word: Address| context.data_pointers.at(word).or_else(|| stored_address(context.image, word));
    addresses_named(context.image, range, |address, used| {
        let is_formed = used == AddressUse::Formed;
        named
            .bases
            .extend(Some(address).filter(|base| is_formed && is_code(base) || context.is_start(*base)));
        named.places.insert(address);
        // A variable of another object is loaded from where its address is loaded from.
        let variable = loaded(address).filter(|variable| !is_code(variable));
        named.places.extend(variable);
        let words = words_read(address, is_formed);
        for word in words.chain(variable.into_iter().flat_map(|variable| words_read(variable, false))) {
            named.bases.extend(context.loaded_at(word));
            named.places.extend(loaded(word));
        }
    });
    named.places.retain(|place| !is_code(place));
    named
}
