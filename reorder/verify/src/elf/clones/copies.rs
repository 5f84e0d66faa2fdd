//! The copies of an image: what each address in them is a copy of, and what may lead there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use goblin::elf::header::ET_EXEC;

use super::claimed::check_places;
use super::guard::Guard;
use super::instruction::Use;
use super::pairing::InstructionMap;
use super::record::{Copied, CopiedTable, Listed, Record};
use super::tables::check_table_places;
use crate::elf::view::{ElfView, SectionView};
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::report::Difference;
use reorder_base::address::{Address, NewAddress};

/// The two images, the copies, and the state of following them.
pub(super) struct Copies<'a> {
    pub(super) old: &'a ElfView<'a>,
    pub(super) new: &'a ElfView<'a>,
    /// The section that holds the copies.
    pub(super) section: &'a SectionView<'a>,
    /// In the order of the copies.
    pub(super) by_copy: Vec<Copied>,
    /// Copied jump tables, in the order of the copies.
    pub(super) tables: Vec<CopiedTable>,
    /// Originals of the instructions that form the address of a copied table, with the number of the table.
    pub(super) formed_tables: BTreeMap<Address, usize>,
    /// Guards before copied instructions that form the address of a copied table, by the originals of these.
    pub(super) guards: BTreeMap<Address, Guard>,
    /// The copied instructions, if the copies are of fragments.
    fragments: Option<InstructionMap>,
    /// Functions of which at least a part is copied: ascending and disjoint.
    copied_functions: Vec<Range<Address>>,
    /// Functions of the old image.
    functions: &'a AddressMoves,
    starts: BTreeSet<Address>,
    /// Places in copies of functions from which control is still to be followed.
    pub(super) waiting: Vec<NewAddress>,
    pub(super) followed: BTreeSet<NewAddress>,
    /// Addresses of the exception tables of fragments.
    pub(super) exception_tables: Vec<Range<u64>>,
    /// Where the original returns to after calls that have a copy.
    pub(super) returned_to: BTreeSet<Address>,
    /// Starts of functions for which some stored address is that of the copy.
    pub(super) led: BTreeSet<Address>,
}

impl<'a> Copies<'a> {
    /// Takes the claimed copies.
    ///
    /// # Errors
    /// The first copy at an impossible place, or the first instruction of a fragment that its copy does not repeat.
    pub(super) fn new(
        (old, new): (&'a ElfView<'a>, &'a ElfView<'a>),
        section: &'a SectionView<'a>,
        record: &Record<'_>,
        functions: &'a AddressMoves,
        starts: BTreeSet<Address>,
    ) -> Result<Self, Difference> {
        let by_copy = check_places(old, section, (record.listed, &record.copies), functions)?;
        let fragments = match record.listed {
            Listed::Functions => None,
            Listed::Fragments => Some(InstructionMap::of(old, section, &by_copy)?),
        };
        let tables = check_table_places(old, section, (&record.tables, &by_copy))?;
        let homes = by_copy.iter().filter_map(|copied| functions.containing(copied.original));
        let mut copied_functions: Vec<Range<Address>> =
            homes.map(|range| range.old_start..range.old_end()).collect();
        copied_functions.sort_unstable_by_key(|range| range.start);
        copied_functions.dedup();
        let (waiting, followed, exception_tables, returned_to, led) = Default::default();
        Ok(Self {
            old,
            new,
            section,
            by_copy,
            tables,
            formed_tables: BTreeMap::new(),
            guards: BTreeMap::new(),
            fragments,
            copied_functions,
            functions,
            starts,
            waiting,
            followed,
            exception_tables,
            returned_to,
            led,
        })
    }

    /// Whether a function certainly starts at `address`.
    pub(super) fn is_start(&self, address: Address) -> bool {
        self.starts.contains(&address)
    }

    /// The copied instructions, if the copies are of fragments.
    pub(super) fn fragments(&self) -> Option<&InstructionMap> {
        self.fragments.as_ref()
    }

    /// The original of the code at `address` of the new image; `None` outside of copies, and where no instruction of a
    /// fragment starts.
    pub(super) fn original(&self, address: NewAddress) -> Option<Address> {
        if let Some(fragments) = &self.fragments {
            return fragments.original(address);
        }
        let after = self.by_copy.partition_point(|copied| copied.copy <= address);
        let copied = self.by_copy[..after].last()?;
        let distance = address.distance_from(copied.copy);
        (distance < copied.size).then(|| copied.original.plus(distance))
    }

    /// Whether `address` of the new image is one that a symbol may name: the start of a fragment, or any place in the copy
    /// of a function.
    pub(super) fn may_be_named(&self, address: NewAddress) -> bool {
        match self.fragments {
            Some(_) => self.by_copy.binary_search_by_key(&address, |copied| copied.copy).is_ok(),
            None => self.original(address).is_some(),
        }
    }

    /// The fragment that begins at `address`, if the copies are of fragments.
    pub(super) fn fragment_at(&self, address: NewAddress) -> Option<&Copied> {
        self.fragments.as_ref()?;
        let number = self.by_copy.binary_search_by_key(&address, |copied| copied.copy).ok()?;
        Some(&self.by_copy[number])
    }

    /// The size of a symbol of the copy at `address`, whose original had `size`: that of the rest of the fragment. Tools find
    /// the symbol of an address by it.
    pub(super) fn named_size(&self, address: NewAddress, size: u64) -> u64 {
        let after = self.by_copy.partition_point(|copied| copied.copy <= address);
        let copied = self.by_copy[..after].last().filter(|copied| address < copied.copy_end());
        let copied = copied.filter(|_| size > 0 && self.fragments.is_some());
        copied.map_or(size, |copied| copied.copy_end().distance_from(address))
    }

    /// Whether no code or data at `place` may hold `target`. It lies inside a function with a copy, at no start of a function,
    /// and `place` lies outside of that function, or the original returns to `target` after a call that has a copy.
    pub(super) fn is_known_inside(&self, target: Address, place: Address) -> bool {
        let after = self.copied_functions.partition_point(|range| range.start < target);
        let Some(range) = self.copied_functions[..after].last().filter(|range| range.contains(&target))
        else {
            return false;
        };
        let is_known = !range.contains(&place) || self.returned_to.contains(&target);
        is_known && !self.starts.contains(&target)
    }

    /// Whether a part of the function that contains `address` is copied.
    pub(super) fn has_copy(&self, address: Address) -> bool {
        let after = self.copied_functions.partition_point(|range| range.start <= address);
        self.copied_functions[..after].last().is_some_and(|range| range.contains(&address))
    }

    /// Whether the code at `found` is that at `address`, or a copy of it.
    pub(super) fn is_same_code(&self, address: Address, found: NewAddress) -> bool {
        self.original(found).map_or(address.0 == found.0, |original| original == address)
    }

    /// Records that control goes to `found` instead of `address`; gives whether that is the same code.
    pub(super) fn leads_to(&mut self, address: Address, found: NewAddress) -> bool {
        let is_same = self.is_same_code(address, found);
        let has_way_in = self.fragments.is_none() && self.original(found).is_some();
        if is_same && has_way_in && !self.followed.contains(&found) {
            self.waiting.push(found);
        }
        is_same
    }

    /// Records that `found` is kept as an address instead of `address`; gives whether they are the same function.
    pub(super) fn stands_for(&mut self, address: Address, found: NewAddress) -> bool {
        if address.0 == found.0 {
            return true;
        }
        let is_entry = self.starts.contains(&address) && self.leads_to(address, found);
        if is_entry {
            self.led.insert(address);
        }
        is_entry
    }

    /// The same for numbers that nothing lists as pointers, in an x86-64 program at a fixed address.
    pub(super) fn is_assumed_pointer(&mut self, address: Address, found: NewAddress) -> bool {
        let may_be_one = self.old.header.e_type == ET_EXEC && self.old.processor == Processor::X86_64;
        may_be_one && self.stands_for(address, found)
    }

    /// Records that the copy of the instruction at `place` states the address `found` instead of `address`; gives whether
    /// these are a copied table and its original.
    pub(super) fn forms_table(
        &mut self,
        (place, usage): (Address, Use),
        address: Address,
        found: NewAddress,
    ) -> bool {
        let Ok(number) = self.tables.binary_search_by_key(&found, |table| table.copy) else { return false };
        let table = &self.tables[number];
        let is_of_addresses = table.entry == CopiedTable::ADDRESS;
        let is_table = table.original == address && is_of_addresses == (usage == Use::Entry);
        if is_table {
            self.formed_tables.insert(place, number);
        }
        is_table
    }

    /// Whether `target` lies inside the function at `place`, where no function starts.
    pub(super) fn is_middle(&self, place: Address, target: Address) -> bool {
        let home = self.functions.containing(place);
        let is_inside = home.is_some_and(|range| (range.old_start..range.old_end()).contains(&target));
        is_inside && !self.starts.contains(&target)
    }

    /// The bytes of the section of copies from `address` on.
    pub(super) fn copied(&self, address: NewAddress) -> Option<&'a [u8]> {
        bytes_from(self.section, address.0)
    }

    /// The bytes of the original's section from `address` on.
    pub(super) fn originals(&self, address: Address) -> Option<&'a [u8]> {
        bytes_from(self.old.section_at(address.0)?, address.0)
    }

    /// Position in the file of `address` in the section of copies.
    pub(super) fn offset(&self, address: NewAddress) -> Option<u64> {
        Some(self.section.offset + address.0.checked_sub(self.section.address)?)
    }
}

/// The bytes of `section` from `address` on.
pub(super) fn bytes_from<'data>(section: &SectionView<'data>, address: u64) -> Option<&'data [u8]> {
    section.bytes.get(usize::try_from(address.checked_sub(section.address)?).ok()?..)
}
