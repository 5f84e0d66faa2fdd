//! What is needed of the rest of the image to follow the instructions of one function.

use std::ops::Range;

use rayon::prelude::*;

use crate::decode::aarch64::{Operation, PAGE, Register, WORD, decode, uses};
use crate::elf::analysis::pointers::PointersByPlace;
use crate::mapped_bytes::MappedBytes;
use crate::stored_distances::{SumBudget, stored_address};
use reorder_base::address::Address;

/// What decoding needs of the rest of the image.
pub struct CodeContext<'data> {
    /// The image.
    pub image: &'data dyn MappedBytes,
    /// Where code may move: Mach-O's `__text`; of ELF from the first section of functions to the end of the last.
    pub text: Range<Address>,
    /// Starts of atoms, sorted; the first is the start of the code.
    pub starts: &'data [Address],
    /// Addresses outside the code that code refers to, sorted: a jump table ends before the next one.
    pub known: Vec<Address>,
    /// Addresses of code in data; empty for Mach-O images.
    pub pointers: PointersByPlace,
    /// Other addresses that the loader stores in data; empty for Mach-O images.
    pub data_pointers: PointersByPlace,
    /// Sums of stored distances that may still be tried.
    pub(crate) sums: SumBudget,
    /// Places that only exceptions lead to, sorted.
    pub(super) landing_pads: &'data [Address],
    /// Registers in which no call returns a value, as bits.
    pub(super) not_returned: u32,
}

/// Reach of `ADR` and of loads of literals, in bytes, in each direction.
const SHORT_REACH: u64 = 1 << 20;

impl<'data> CodeContext<'data> {
    /// Scans all code, divided into `atoms`, once for the addresses it refers to. `starts` are the starts of the atoms,
    /// sorted; no call returns a value in the registers `not_returned`.
    #[must_use]
    pub fn new(
        image: &'data dyn MappedBytes,
        text: Range<Address>,
        starts: &'data [Address],
        atoms: &[Range<Address>],
        landing_pads: &'data [Address],
        not_returned: u32,
    ) -> Self {
        let sums = SumBudget::for_code(text.end.distance_from(text.start));
        let mut context = Self {
            image,
            text,
            sums,
            starts,
            known: Vec::new(),
            pointers: PointersByPlace::default(),
            data_pointers: PointersByPlace::default(),
            landing_pads,
            not_returned,
        };
        let mut known: Vec<Address> = atoms
            .par_iter()
            .with_min_len(256)
            .fold(Vec::new, |mut found, atom| {
                addresses_named(image, atom.clone(), |target, _| {
                    if !context.text.contains(&target) {
                        found.push(target);
                    }
                });
                found
            })
            .reduce(Vec::new, |mut all, some| {
                all.extend(some);
                all
            });
        known.par_sort_unstable();
        known.dedup();
        context.known = known;
        context
    }

    /// The address of code that the eight bytes at `place` hold: by the loader's relocations, or else that of an atom, by the file.
    pub(super) fn loaded_at(&self, place: Address) -> Option<Address> {
        let stored = || stored_address(self.image, place).filter(|target| self.is_start(*target));
        self.pointers.at(place).or_else(stored)
    }

    /// Whether an atom starts there.
    pub(super) fn is_start(&self, address: Address) -> bool {
        self.starts.binary_search(&address).is_ok()
    }

    /// Whether a page of 4 KiB holds bytes of the code.
    pub(super) fn shares_page(&self, page: Address) -> bool {
        page.plus(PAGE) > self.text.start && page < self.text.end
    }

    /// Whether `ADR` reaches `target` from wherever an atom may be put.
    pub(super) fn is_near(&self, target: Address) -> bool {
        target.0.abs_diff(self.text.start.0) < SHORT_REACH && target.0.abs_diff(self.text.end.0) < SHORT_REACH
    }

    /// Whether another atom than this starts there.
    pub(super) fn is_start_elsewhere(&self, address: Address, atom: &Range<Address>) -> bool {
        !atom.contains(&address) && self.starts.binary_search(&address).is_ok()
    }

    /// Starts of the atoms that share a page.
    pub(super) fn atoms_on_page(&self, page: Address) -> impl Iterator<Item = Address> + '_ {
        let first = self.starts.partition_point(|start| *start <= page).saturating_sub(1);
        self.starts[first..].iter().copied().take_while(move |start| *start < page.plus(PAGE))
    }
}

/// What an instruction does with an address that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressUse {
    /// The address itself is the result.
    Formed,
    /// The bytes there are loaded or stored.
    Accessed,
}

/// Calls `push` with the addresses that the instructions at `range` name, as far as a linear scan shows.
pub(super) fn addresses_named(
    image: &dyn MappedBytes,
    range: Range<Address>,
    mut push: impl FnMut(Address, AddressUse),
) {
    let bytes = image.bytes_at(range.start, range.end.distance_from(range.start)).unwrap_or_default();
    let mut pages: [Option<Address>; 32] = [None; 32];
    // Bits of the registers that hold a page: most instructions use none of them.
    let mut held = 0_u32;
    let (words, _) = bytes.as_chunks::<4>();
    for (index, word) in words.iter().enumerate() {
        let word = u32::from_le_bytes(*word);
        if held == 0 && !forms_address(word) {
            continue;
        }
        let page_of = |register: Register| pages[usize::from(register.0)];
        match decode(word, range.start.plus(index as u64 * WORD)) {
            Operation::Adr(_, target) => push(target, AddressUse::Formed),
            Operation::LoadLiteral(_, target) => push(target, AddressUse::Accessed),
            Operation::AddImmediate(_, source, number) => {
                page_of(source).into_iter().for_each(|page| push(page.plus(number), AddressUse::Formed));
            }
            Operation::Access(base, offset, _) => {
                page_of(base).into_iter().for_each(|page| push(page.plus(offset), AddressUse::Accessed));
            }
            Operation::Adrp(register, page) => {
                pages[usize::from(register.0)] = Some(page);
                held |= 1 << register.0;
                continue;
            }
            Operation::Call(_) | Operation::CallRegister(_) => {
                pages[..19].fill(None);
                held &= !0x7_ffff;
            }
            _ => {}
        }
        let mut written = uses(word).writes & held;
        held &= !written;
        while written != 0 {
            pages[written.trailing_zeros() as usize] = None;
            written &= written - 1;
        }
    }
}

/// Whether `word` may be `ADR`, `ADRP` or a load of a literal.
fn forms_address(word: u32) -> bool {
    word & 0x1f00_0000 == 0x1000_0000 || word & 0x3b00_0000 == 0x1800_0000
}
