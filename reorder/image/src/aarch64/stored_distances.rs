//! Pins functions between which data holds distances.

use super::Builder;
use super::context::{AddressUse, addresses_named};
use crate::pins::PinReason;
use crate::stored_distances::{DistanceSearch, NamedAddresses, stored_address, words_read};
use reorder_base::address::Address;

impl Builder<'_, '_> {
    /// Pins the functions to which the words of a table lead from a function, and that one too, where the atom names both.
    pub(super) fn keep_stored_distances(&mut self) {
        let context = self.context;
        let search = DistanceSearch {
            image: context.image,
            text: context.text.clone(),
            is_start: &|address| context.is_start(address),
            is_other: &|_, _| false,
            budget: &context.sums,
        };
        // If there are too many, the whole image is refused.
        let found = search.distances(&self.named_addresses()).unwrap_or_default();
        for (function, table) in found {
            match self.atom.contains(&function) {
                true => self.pin(PinReason::ComputedAddress, table),
                false => self.result.summed.push(function),
            }
        }
    }

    fn named_addresses(&self) -> NamedAddresses {
        let context = self.context;
        let is_code = |address: &Address| context.text.contains(address);
        let mut named = NamedAddresses::default();
        // The large code model loads addresses from literals, and other code from the global offset table.
        let loaded =
            |word: Address| context.data_pointers.at(word).or_else(|| stored_address(context.image, word));
        addresses_named(context.image, self.atom.clone(), |address, used| {
            let is_formed = used == AddressUse::Formed;
            named
                .bases
                .extend(Some(address).filter(|base| is_formed && is_code(base) || context.is_start(*base)));
            named.places.insert(address);
            // A variable of another object is loaded from where its address is loaded from.
            let variable = loaded(address).filter(|variable| !is_code(variable));
            let words = words_read(address, is_formed)
                .chain(variable.into_iter().flat_map(|it| words_read(it, false)));
            for word in words {
                named.bases.extend(context.loaded_at(word));
                named.places.extend(loaded(word));
            }
        });
        named.places.retain(|place| !is_code(place));
        named
    }
}
