//! One AArch64 function, old against new.
//!
//! Every word is the same or stands for the mapped target, which must in turn have come from the old one; the words are of
//! the same forms, so that moving them back gives the old bytes. Tables of distances from a place in the function keep their
//! words; those of distances from the table itself are left to the check of tables.

use rayon::prelude::*;

use super::{CodeOutcome, FunctionPair, FunctionShape, Naming};
use crate::aarch64::{
    self, CodePair, Counts, MovedPages, dispatches, leaving_targets, own_distances, summed_addresses,
};
use crate::bytes::u64_at;
use crate::elf::pair::ImagePair;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, NewAddress};

impl FunctionPair<'_> {
    /// Checks the function in both directions and records in `outcome` and `shape` what it shows.
    pub(super) fn check_words(
        &self,
        pages: &MovedPages,
        outcome: &mut CodeOutcome,
        shape: &mut FunctionShape,
    ) -> Result<(), Difference> {
        let code = CodePair {
            check: Check::Functions,
            images: &self.images,
            pages,
            range: *self.range,
            old: self.old_bytes,
            new: self.new_bytes,
            offset: self.new_offset.0,
        };
        let mut counts = Counts::default();
        if let Some(difference) = code.check(&mut counts) {
            return Err(difference);
        }
        outcome.instructions += counts.instructions;
        outcome.fields += counts.fields;
        self.check_leaving_targets(&leaving_targets(&code))?;
        let code = aarch64::without_literals(self.without_trailing_data(), self.range.old_start.0);
        shape.runs_on = aarch64::runs_on(code);
        let found = dispatches(self.old_bytes, self.range.old_start.0);
        self.check_anchors(&found.anchors)?;
        shape.tables = found.tables.into_iter().map(Address).collect();
        let is_function = |address: u64| {
            let range = self.images.moves.containing(Address(address));
            range.is_some_and(|range| range.old_start.0 == address)
        };
        let summed = summed_addresses(self.old_bytes, self.range.old_start.0, is_function);
        outcome.summed.extend(summed.into_iter().map(Address));
        outcome.sums.extend(found.sums);
        let constant = |place: u64| {
            let section = self.images.old.section_at(place).filter(|section| section.is_code())?;
            u64_at(section.at(place, 8)?, 0)
        };
        outcome.distances.extend(own_distances(self.old_bytes, self.range.old_start.0, constant));
        let named = aarch64::addresses(self.old_bytes, self.range.old_start.0);
        let literals = named.iter().filter_map(|address| constant(*address));
        outcome.naming.extend(Naming::new(literals.chain(named.iter().copied()).map(Address).collect()));
        Ok(())
    }

    /// The old bytes without the data at their end, if mapping symbols state any.
    fn without_trailing_data(&self) -> &[u8] {
        let (start, end) = (self.range.old_start.0, self.range.old_end().0);
        let data = self.images.old.data_between(start, end).last().filter(|data| data.end >= end);
        let length = data.map_or(self.range.size, |data| data.start.saturating_sub(start));
        self.old_bytes.get(..length as usize).unwrap_or_default()
    }

    /// Table entries do not change, so the places in other functions that they lead to must have moved by the same distance.
    fn check_leaving_targets(&self, targets: &[u64]) -> Result<(), Difference> {
        let delta = |address: u64| self.images.mapped(Address(address)).0.wrapping_sub(address);
        match targets.iter().find(|&&target| delta(target) != self.range.delta()) {
            None => Ok(()),
            Some(target) => Err(Difference::new(
                Check::JumpTables,
                None,
                format!("the jumps of {}", self.range),
                "tables that lead to what moved with it",
                format!(
                    "one that leads to {target:#x}, which is at {}",
                    NewAddress(target.wrapping_add(delta(*target)))
                ),
            )),
        }
    }

    /// The distances that are added to these addresses before a jump do not change, so the addresses must have moved as the
    /// function did.
    fn check_anchors(&self, anchors: &[u64]) -> Result<(), Difference> {
        let delta = |address: u64| self.images.mapped(Address(address)).0.wrapping_sub(address);
        match anchors.iter().find(|&&anchor| delta(anchor) != self.range.delta()) {
            None => Ok(()),
            Some(anchor) => Err(Difference::new(
                Check::JumpTables,
                None,
                format!("the jumps of {}", self.range),
                "tables that count from a place which moved with it",
                format!(
                    "one that counts from {anchor:#x}, which is at {}",
                    NewAddress(anchor.wrapping_add(delta(*anchor)))
                ),
            )),
        }
    }
}

/// Addresses outside of code that the code of the old image computes, ascending.
pub(crate) fn references(images: ImagePair<'_>) -> Vec<Address> {
    computed(images, |address| images.old.section_at(address.0).is_some_and(|home| !home.is_code()))
}

/// Starts of functions, and places of code in no function, that the code of the old image computes, ascending.
pub(crate) fn formed_entries(images: ImagePair<'_>) -> Vec<Address> {
    computed(images, |address| match images.moves.containing(address) {
        Some(function) => function.old_start == address,
        None => images.old.code_at(address.0, address.0).is_some(),
    })
}

/// The addresses that the code of the old image computes and that are wanted, ascending.
fn computed(images: ImagePair<'_>, is_wanted: impl Fn(Address) -> bool + Sync) -> Vec<Address> {
    /// Bytes of code per work item, about: items begin where functions do, so none splits the pair that forms an address.
    const CHUNK: usize = 1 << 18;
    let mut found: Vec<Address> = Vec::new();
    for section in images.old.code_sections() {
        let size = section.bytes.len();
        let cut = |number: usize| {
            let place = Address(section.address).plus((number * CHUNK) as u64);
            let start = images
                .moves
                .following(place)
                .map(|next| next.old_start.distance_from(Address(section.address)));
            match number {
                0 => 0,
                _ => {
                    start.and_then(|start| usize::try_from(start).ok()).map_or(size, |start| start.min(size))
                }
            }
        };
        let chunks = (0..size.div_ceil(CHUNK)).into_par_iter().map(|number| {
            let range = cut(number)..cut(number + 1);
            let start = section.address + range.start as u64;
            let addresses = aarch64::addresses(&section.bytes[range], start);
            let mut found: Vec<Address> =
                addresses.into_iter().map(Address).filter(|address| is_wanted(*address)).collect();
            found.sort_unstable();
            found.dedup();
            found
        });
        found.extend(chunks.collect::<Vec<_>>().into_iter().flatten());
    }
    found.par_sort_unstable();
    found.dedup();
    found
}
