//! Follows every way into a copy: each instruction that can run there does what the original's does.
//!
//! Bytes that control cannot reach are not checked. Computed jumps are not followed: they compute with the same values in
//! the copy, and with no addresses of copies except starts of functions, so they lead into the original. Only return
//! addresses differ; programs are assumed not to compute with them, except after calls into a function's own middle.

use std::collections::BTreeSet;

use super::instruction::{Pair, Use, compare, jump_target};
use super::record::Copied;
use crate::elf::view::{ElfView, SectionView};
use crate::moves::AddressMoves;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};

/// The two images, the copies, and the state of following them.
pub(super) struct Copies<'a> {
    pub(super) old: &'a ElfView<'a>,
    pub(super) new: &'a ElfView<'a>,
    /// The section that holds the copies.
    section: &'a SectionView<'a>,
    by_copy: Vec<Copied>,
    by_original: Vec<Copied>,
    /// Functions of the old image.
    functions: &'a AddressMoves,
    starts: BTreeSet<Address>,
    waiting: Vec<NewAddress>,
    followed: BTreeSet<NewAddress>,
    /// Starts of functions for which some stored address is that of the copy.
    pub(super) led: BTreeSet<Address>,
}

impl<'a> Copies<'a> {
    /// Takes the claimed copies, if each is of one whole function and none shares bytes with another.
    ///
    /// # Errors
    /// The first copy that breaks this rule.
    pub(super) fn new(
        (old, new): (&'a ElfView<'a>, &'a ElfView<'a>),
        section: &'a SectionView<'a>,
        copies: &[Copied],
        functions: &'a AddressMoves,
        starts: BTreeSet<Address>,
    ) -> Result<Self, Difference> {
        let wrong = |copied: &Copied, what: &str| {
            let name = format!("the copy of {} at {}", copied.original, copied.copy);
            Difference::new(Check::Copies, None, name, "a copy of a function, apart from the others", what)
        };
        let mut by_copy = copies.to_vec();
        by_copy.sort_unstable_by_key(|copied| copied.copy);
        let mut by_original = copies.to_vec();
        by_original.sort_unstable();
        for copied in &by_copy {
            let end = copied.original_end();
            let is_function = functions
                .containing(copied.original)
                .is_some_and(|range| (range.old_start, range.old_end()) == (copied.original, end));
            if !is_function || old.code_at(copied.original.0, end.0).is_none() {
                return Err(wrong(copied, "not a whole function"));
            }
            if !section.holds(copied.copy.0, copied.copy_end().0) {
                return Err(wrong(copied, "outside of the section of copies"));
            }
        }
        if let Some(pair) = by_copy.windows(2).find(|pair| pair[0].copy_end() > pair[1].copy) {
            return Err(wrong(&pair[1], "it shares bytes with another"));
        }
        if let Some(pair) = by_original.windows(2).find(|pair| pair[0].original == pair[1].original) {
            return Err(wrong(&pair[1], "a second copy"));
        }
        let (waiting, followed, led) = Default::default();
        Ok(Self { old, new, section, by_copy, by_original, functions, starts, waiting, followed, led })
    }

    /// The original of the code at `address` of the new image; `None` outside of copies.
    pub(super) fn original(&self, address: NewAddress) -> Option<Address> {
        let after = self.by_copy.partition_point(|copied| copied.copy <= address);
        let copied = self.by_copy[..after].last()?;
        let distance = address.distance_from(copied.copy);
        (distance < copied.size).then(|| copied.original.plus(distance))
    }

    /// Whether `target` lies inside an original with a copy, at no start of a function, and `place` lies outside of that
    /// original.
    pub(super) fn is_known_inside(&self, target: Address, place: Address) -> bool {
        let after = self.by_original.partition_point(|copied| copied.original < target);
        let Some(copied) = self.by_original[..after].last() else { return false };
        let range = copied.original..copied.original_end();
        range.contains(&target) && !range.contains(&place) && !self.starts.contains(&target)
    }

    /// Records that control goes to `found` instead of `address`; gives whether that is the same code.
    pub(super) fn leads_to(&mut self, address: Address, found: NewAddress) -> bool {
        let original = self.original(found);
        if original.is_none() {
            return address.0 == found.0;
        }
        if original == Some(address) && !self.followed.contains(&found) {
            self.waiting.push(found);
        }
        original == Some(address)
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

    /// Follows control from all known ways in; gives the number of instructions.
    pub(super) fn follow(&mut self, findings: &mut Findings) -> usize {
        while let Some(start) = self.waiting.pop() {
            if let Err(difference) = self.follow_from(start) {
                findings.differs(difference);
            }
        }
        self.followed.len()
    }

    /// The bytes of the section of copies from `address` on.
    fn copied(&self, address: NewAddress) -> Option<&'a [u8]> {
        let section: &'a SectionView<'a> = self.section;
        section.bytes.get(usize::try_from(address.0.checked_sub(section.address)?).ok()?..)
    }

    fn offset(&self, address: NewAddress) -> Option<u64> {
        Some(self.section.offset + address.0.checked_sub(self.section.address)?)
    }

    fn follow_from(&mut self, start: NewAddress) -> Result<(), Difference> {
        let mut address = start;
        let Some(mut original) = self.original(start) else { return Ok(()) };
        loop {
            // After the last byte of a copy another copy may begin, which is not of this original.
            if self.original(address) != Some(original) {
                return self.check_end(address, original);
            }
            if !self.followed.insert(address) {
                return Ok(());
            }
            let home = self.old.section_at(original.0);
            let old = home.and_then(|home| home.bytes.get((original.0 - home.address) as usize..));
            let pair = old
                .zip(self.copied(address))
                .and_then(|(old, new)| compare(self.old.processor, (old, original), (new, address)));
            let Some(Pair { length, continues, stated }) = pair else {
                let name = format!("the copy of the instruction at {original}");
                let offset = self.offset(address);
                return Err(Difference::new(Check::Copies, offset, name, "the same", "another one"));
            };
            if let Some((before, after, usage)) = stated {
                // The return address of a call is a place in the copy. Code that calls into its own function's middle
                // computes with it.
                let learns_place = usage == Use::Call && self.is_middle(original, before);
                let is_same = match usage {
                    Use::Jump | Use::Call => self.leads_to(before, after),
                    Use::Value => self.stands_for(before, after),
                    Use::Same => before.0 == after.0,
                };
                if !is_same || learns_place {
                    let name = format!("what the copied instruction at {address} states");
                    let expected = format!("{before} or its copy");
                    let found = after.to_string();
                    return Err(Difference::new(Check::Copies, self.offset(address), name, expected, found));
                }
            }
            if !continues {
                return Ok(());
            }
            address = address.plus(length);
            original = original.plus(length);
        }
    }

    /// Whether `target` lies inside the function at `place`, where no function starts.
    fn is_middle(&self, place: Address, target: Address) -> bool {
        let home = self.functions.containing(place);
        let is_inside = home.is_some_and(|range| (range.old_start..range.old_end()).contains(&target));
        is_inside && !self.starts.contains(&target)
    }

    /// Checks that a copy whose end control reaches is followed by a jump to the code after the original.
    fn check_end(&mut self, address: NewAddress, ending: Address) -> Result<(), Difference> {
        let target = self.copied(address).and_then(|bytes| jump_target(self.new.processor, bytes, address));
        match target {
            Some(target) if self.leads_to(ending, target) => Ok(()),
            _ => {
                let name = format!("what follows the copy at {address}");
                let found = target.map_or_else(|| "no jump".to_owned(), |found| found.to_string());
                Err(Difference::new(Check::Copies, self.offset(address), name, "a jump back", found))
            }
        }
    }
}
