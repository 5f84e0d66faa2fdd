//! The two images, the map between them, and what the checks share.

use std::fmt;
use std::ops::Range;

use goblin::elf::section_header::SHF_WRITE;

use super::absolute_fields::{AbsoluteField, AbsoluteFields};
use super::alignment::Alignments;
use crate::aarch64::{Images, NOP};
use crate::bytes::u32_at;
use crate::elf::landing_pads::LandingPads;
use crate::elf::view::ElfView;
use crate::moves::AddressMoves;
use crate::padding::padding_length;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use crate::unchanged::Claims;
use reorder_base::address::{Address, FileOffset, NewAddress};

/// Both images and the recovered map: the input of every check.
#[derive(Clone, Copy)]
pub(crate) struct ImagePair<'a> {
    /// The image before relocation.
    pub(crate) old: &'a ElfView<'a>,
    /// The image after it.
    pub(crate) new: &'a ElfView<'a>,
    /// Where functions went.
    pub(crate) moves: &'a AddressMoves,
    /// Addresses that the old image stores as constants.
    pub(crate) absolute: &'a AbsoluteFields,
    /// Where exceptions are caught in AArch64 functions of the old image.
    pub(crate) pads: &'a LandingPads,
    /// Alignment that functions of the old image may rely on.
    pub(crate) alignments: &'a Alignments,
}

/// Largest prefix of a function in bytes: a few patchable no-operations, and constants.
const MAX_PREFIX: u64 = 0x1000;

/// Bytes that compilers put between patchable no-operations and the entry.
const MAX_CONSTANTS: usize = 16;

/// What the checks produce: findings, and the bytes they answer for.
pub(crate) struct Ledger<'a> {
    /// Differences and counts.
    pub(crate) findings: &'a mut Findings,
    /// Bytes that these checks compared completely.
    pub(crate) claims: &'a mut Claims,
}

impl Ledger<'_> {
    /// Adds a difference at `offset` of the file unless the address `found` there is the `expected` one.
    pub(crate) fn expect_address(
        &mut self,
        check: Check,
        offset: FileOffset,
        place: impl fmt::Display,
        expected: NewAddress,
        found: NewAddress,
    ) {
        self.findings.expect(check, offset.0, place, expected.0, found.0);
    }

    /// Claims the `size` bytes at `offset` of the file: no other check need compare them.
    pub(crate) fn claim(&mut self, offset: FileOffset, size: u64) {
        self.claims.add(offset.0, size);
    }
}

impl<'a> ImagePair<'a> {
    /// Where the byte at `address` of the old image lies in the new image.
    pub(crate) fn mapped(&self, address: Address) -> NewAddress {
        self.moves.map(address)
    }

    /// Whether `found` is where the code at `address` went.
    ///
    /// A place in the padding before a function, such as a function without instructions, has two readings: it stayed, or it
    /// moved with the function that control runs into, together with the padding between them.
    pub(crate) fn leads_to(&self, address: Address, found: NewAddress) -> bool {
        self.mapped(address) == found || self.is_prefix(address, found)
    }

    /// A difference if a function that starts at `address`, which the program takes as a value, was aligned and no longer
    /// is. The low bits of a function pointer may have a meaning: the lowest bit of a C++ pointer to a member function says
    /// whether the function is virtual (Itanium C++ ABI, section 2.3).
    pub(crate) fn lost_alignment(&self, check: Check, address: Address) -> Option<Difference> {
        let range = self.moves.starting_at(address)?;
        if !range.is_moved() {
            return None;
        }
        let alignment = self.alignments.demanded(range);
        (!range.new_start.0.is_multiple_of(alignment)).then(|| {
            let place = format!("the function at {}, whose address is taken", range.old_start);
            let expected = format!("a multiple of {alignment}");
            Difference::new(check, None, place, expected, range.new_start.to_string())
        })
    }

    /// Whether `found` is what the field of an address must hold in the new image.
    pub(crate) fn holds_followed(&self, field: &AbsoluteField, found: NewAddress) -> bool {
        let in_width = |value: u64| if field.width == 8 { value } else { u64::from(value as u32) };
        in_width(self.mapped(field.value).0) == found.0 || self.is_prefix(field.value, found)
    }

    /// The old address of the bytes at `found` in the new image, if they are a prefix that moved with the function after it.
    pub(crate) fn prefix_origin(&self, found: NewAddress) -> Option<Address> {
        let next = self.moves.following_new(found)?;
        let origin = Address(found.0.wrapping_sub(next.delta()));
        self.is_prefix(origin, found).then_some(origin)
    }

    /// The new address of the prefix at `address` of the old image, if it moved with the function after it.
    pub(crate) fn carried(&self, address: Address) -> Option<NewAddress> {
        let next = self.moves.following(address).filter(|next| next.is_moved())?;
        let found = NewAddress(address.0.wrapping_add(next.delta()));
        self.is_prefix(address, found).then_some(found)
    }

    /// Whether the bytes from `address` to the next function are padding or constants that stand unchanged at `found`,
    /// right before the same function.
    fn is_prefix(&self, address: Address, found: NewAddress) -> bool {
        if self.moves.containing(address).is_some() {
            return false;
        }
        let Some(next) = self.moves.following(address) else { return false };
        if found.0.wrapping_sub(address.0) != next.delta() {
            return false;
        }
        let size = next.old_start.distance_from(address);
        if size > MAX_PREFIX {
            return false;
        }
        let bytes = |image: &'a ElfView<'a>, start: u64| {
            image.code_at(start, start.checked_add(size)?).and_then(|section| section.at(start, size))
        };
        let prefix = bytes(self.old, address.0);
        let is_one = |prefix: &[u8]| match self.old.processor {
            Processor::Aarch64 if has_few_words_of_data(prefix) => true,
            processor => {
                let padding = padding_length(processor, prefix, address.0);
                // Right after a function they may also be taken for its end: their new place serves both readings.
                let is_apart = padding > 0 || self.moves.ending_at(address).is_some();
                padding == prefix.len() || is_apart && prefix.len() - padding <= MAX_CONSTANTS
            }
        };
        prefix.is_some_and(is_one) && prefix == bytes(self.new, found.0)
    }

    /// Whether the padding at `address`, which something refers to, keeps its bytes up to its end. The same holds for data
    /// that moved with the next function: no other check looks at the place that it left.
    fn is_kept(&self, address: Address) -> bool {
        if self.moves.containing(address).is_some() {
            return true;
        }
        let Some(section) = self.old.section_at(address.0).filter(|section| section.is_code()) else {
            return true;
        };
        let next = self.moves.following(address).map_or(section.end(), |next| next.old_start.0);
        // A longer run of padding is not for alignment; the bound keeps many references to one run cheap.
        let size = (next.min(section.end()) - address.0).min(0x1000);
        // Both images are read at the same number: the question is whether the place itself kept its bytes.
        let bytes = |image: &'a ElfView<'a>| {
            image.section_at(address.0).and_then(|section| section.at(address.0, size)).unwrap_or_default()
        };
        let (before, after) = (bytes(self.old), bytes(self.new));
        let padding = padding_length(self.old.processor, before, address.0);
        if padding == 0 && self.carried(address).is_some() {
            return before == after;
        }
        after.get(..padding) == before.get(..padding)
    }

    /// Whether `found` is where the jump target `target` went. The end of a function also counts as a place in that
    /// function.
    pub(crate) fn is_target(&self, target: Address, found: NewAddress) -> bool {
        self.leads_to(target, found)
            || self.moves.ending_at(target).is_some_and(|range| range.new_end() == found)
    }
}

/// Whether `prefix` is what callers may read before an AArch64 function: a signature and a hash, and room for patches.
fn has_few_words_of_data(prefix: &[u8]) -> bool {
    let words = prefix.chunks_exact(4).map(|word| u32_at(word, 0).unwrap_or(0));
    words.rev().skip_while(|word| *word == NOP).count() <= 2
}

// `Images` also serves Mach-O, where the code decoder works on plain numbers: here the numbers get their address spaces.
impl Images for ImagePair<'_> {
    /// In both directions: what the new image names must also have come from `address`.
    fn follows(&self, address: u64, found: u64) -> bool {
        let (old, new) = (Address(address), NewAddress(found));
        let returns = || self.moves.unmap(new) == old || self.prefix_origin(new) == Some(old);
        self.leads_to(old, new) && returns() && (address != found || self.is_kept(old))
    }

    /// The end of a function that no other function follows directly moves with the function.
    fn is_target(&self, target: u64, found: u64) -> bool {
        let goes_with_function = || {
            let before = self.moves.ending_at(Address(target));
            self.moves.containing(Address(target)).is_none()
                && before.is_some_and(|range| range.new_end().0 == found)
        };
        self.follows(target, found) || goes_with_function()
    }

    fn expected(&self, address: u64) -> String {
        self.mapped(Address(address)).to_string()
    }

    fn is_text(&self, address: u64) -> bool {
        self.old.section_at(address).is_some_and(|section| section.is_code())
    }

    fn is_landing_pad(&self, address: u64) -> Option<bool> {
        self.pads.contains(Address(address))
    }

    fn constants(&self, address: u64, size: u64) -> Option<&[u8]> {
        let section = self.old.section_at(address)?;
        let is_written = section.flags & u64::from(SHF_WRITE) != 0;
        section.at(address, size).filter(|_| !is_written)
    }

    fn data_between(&self, start: u64, end: u64) -> &[Range<u64>] {
        self.old.data_between(start, end)
    }
}
