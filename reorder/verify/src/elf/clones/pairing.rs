//! Which instruction of a fragment each instruction of its copy repeats.
//!
//! Original and copy are read from their first bytes on, side by side. Instructions that correspond do the same; where they
//! lead is checked when all of them are known.

use super::copies::bytes_from;
use super::instruction::{Pair, compare_guarded};
use super::record::Copied;
use crate::elf::view::{ElfView, SectionView};
use crate::report::{Check, Difference};
use reorder_base::address::{Address, NewAddress};

/// An instruction of a fragment, and its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    /// First address of the copy.
    pub(super) copy: NewAddress,
    /// First address of the original.
    pub(super) original: Address,
}

/// All copied instructions, in the order of the copies.
#[derive(Debug, Default)]
pub(super) struct InstructionMap {
    repeated: Vec<Repeated>,
}

impl InstructionMap {
    /// Reads the fragments and their copies; `by_copy` is ascending, and all places lie inside of code.
    ///
    /// # Errors
    /// The first instruction that does something else, or that does not end with its fragment.
    pub(super) fn of(
        old: &ElfView<'_>,
        section: &SectionView<'_>,
        by_copy: &[Copied],
    ) -> Result<Self, Difference> {
        let mut map = Self::default();
        for copied in by_copy {
            let walk = PairWalk::of(old, section, copied);
            for step in walk {
                let (repeated, _) = step.map_err(|at| {
                    let name = format!("the copy of the instruction at {}", at.original);
                    let offset = Some(section.offset + at.copy.0.wrapping_sub(section.address));
                    Difference::new(Check::Copies, offset, name, "the same", "another one")
                })?;
                map.repeated.push(repeated);
            }
        }
        map.repeated.shrink_to_fit();
        Ok(map)
    }

    /// The original of the instruction that starts at `address`.
    pub(super) fn original(&self, address: NewAddress) -> Option<Address> {
        let at = self.repeated.binary_search_by_key(&address, |repeated| repeated.copy).ok()?;
        Some(self.repeated[at].original)
    }

    /// The instructions of one fragment, in order.
    pub(super) fn of_fragment(&self, copied: &Copied) -> &[Repeated] {
        let from = self.repeated.partition_point(|repeated| repeated.copy < copied.copy);
        let to = self.repeated.partition_point(|repeated| repeated.copy < copied.copy_end());
        &self.repeated[from..to]
    }

    /// Number of copied instructions.
    pub(super) fn len(&self) -> usize {
        self.repeated.len()
    }
}

/// Reads one fragment and its copy side by side, until the original's end; gives pairs of instructions, or as the last item
/// the place where they differ.
pub(super) struct PairWalk<'data> {
    old: &'data ElfView<'data>,
    /// The rest of the original and of its copy.
    rest: Option<(&'data [u8], &'data [u8])>,
    at: Repeated,
}

impl<'data> PairWalk<'data> {
    /// At the first instructions of both.
    pub(super) fn of(old: &'data ElfView<'data>, section: &SectionView<'data>, copied: &Copied) -> Self {
        let part = |home: &SectionView<'data>, start: u64, size: u64| {
            bytes_from(home, start)?.get(..usize::try_from(size).ok()?)
        };
        let home = old.section_at(copied.original.0);
        let original = home.and_then(|home| part(home, copied.original.0, copied.size));
        let rest = original.zip(part(section, copied.copy.0, copied.copy_size));
        Self { old, rest, at: Repeated { copy: copied.copy, original: copied.original } }
    }
}

impl Iterator for PairWalk<'_> {
    type Item = Result<(Repeated, Pair), Repeated>;

    fn next(&mut self) -> Option<Self::Item> {
        let (old, new) = self.rest.take()?;
        if old.is_empty() {
            return None;
        }
        let at = self.at;
        let advance = |bytes: &'_ [u8], length: u64| bytes.len() as u64 >= length;
        let pair = compare_guarded(self.old.processor, (old, at.original), (new, at.copy))
            .filter(|pair| !pair.is_placed)
            .filter(|pair| advance(old, pair.old_length) && advance(new, pair.new_length));
        let Some(pair) = pair else { return Some(Err(at)) };
        self.rest = Some((&old[pair.old_length as usize..], &new[pair.new_length as usize..]));
        self.at =
            Repeated { copy: at.copy.plus(pair.new_length), original: at.original.plus(pair.old_length) };
        Some(Ok((at, pair)))
    }
}
