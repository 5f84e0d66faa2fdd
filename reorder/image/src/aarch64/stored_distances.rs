//! Pins functions between which data holds distances.

use std::collections::BTreeSet;

use super::Builder;
use super::context::addresses_formed;
use crate::pins::PinReason;
use crate::stored_distances::{DistanceSearch, NamedAddresses, stored_address, words_from};
use reorder_base::address::Address;

impl Builder<'_, '_> {
    /// Pins the functions to which the words of a table lead from a function, and that one too, where the atom names both.
    pub(super) fn keep_stored_distances(&mut self) {
        let context = self.context;
        let named = self.named_addresses();
        let search = DistanceSearch {
            image: context.image,
            text: context.text.clone(),
            is_start: &|address| context.is_start(address),
            is_other: &|_, _| false,
        };
        let Some(found) = search.distances(&named) else {
            self.pin(PinReason::ComputedAddress, self.atom.start);
            self.result.calls_anything = true;
            return;
        };
        for distances in found {
            let mut functions = distances.reached;
            functions.insert(distances.base);
            if functions.iter().any(|function| self.atom.contains(function)) {
                self.pin(PinReason::ComputedAddress, distances.table);
            }
            functions.retain(|function| !self.atom.contains(function));
            self.result.summed.extend(functions);
        }
    }

    fn named_addresses(&self) -> NamedAddresses {
        let context = self.context;
        let (mut bases, mut places) = (BTreeSet::new(), BTreeSet::new());
        addresses_formed(context.image, self.atom.clone(), |address| {
            bases.extend(Some(address).filter(|base| context.is_start(*base)));
            places.insert(address);
            // The large code model loads addresses from literals, and other code from the global offset table.
            for word in words_from(address) {
                bases.extend(context.loaded_at(word).filter(|base| context.is_start(*base)));
                places.extend(context.data_pointers.at(word).or_else(|| stored_address(context.image, word)));
            }
        });
        places.retain(|place: &Address| !context.text.contains(place));
        NamedAddresses { bases, places, size: self.atom.end.distance_from(self.atom.start) }
    }
}
