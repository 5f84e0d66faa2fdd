//! One word of a table: its old and its new target.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::bytes::{displacement_at, u64_at};
use crate::elf::pair::ImagePair;
use crate::moves::Move;
use crate::processor::Processor;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, NewAddress};

/// A word, with the targets that it has when it is added to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableWord {
    /// Its own address.
    pub(super) place: Address,
    /// Its target in the old image.
    pub(super) target: Address,
    /// Its target in the new image.
    pub(super) found: NewAddress,
    /// Whether its bytes changed.
    pub(super) has_changed: bool,
}

impl TableWord {
    /// The word of `width` bytes at `place`, which is added to `anchor`; `None` in code and outside of the file.
    pub(super) fn at(pair: ImagePair<'_>, anchor: Address, place: Address, width: u8) -> Option<Self> {
        let section = pair.old.section_at(place.0).filter(|section| !section.is_code())?;
        section.at(place.0, u64::from(width))?;
        let offset = usize::try_from(section.offset + (place.0 - section.address)).ok()?;
        let read = |bytes| if width == 8 { u64_at(bytes, offset) } else { displacement_at(bytes, offset) };
        let (before, after) = (read(pair.old.bytes)?, read(pair.new.bytes)?);
        Some(Self {
            place,
            target: anchor.plus(before),
            found: pair.mapped(anchor).plus(after),
            has_changed: before != after,
        })
    }

    /// Whether it leads to the new place of its target.
    pub(super) fn is_followed(&self, pair: ImagePair<'_>) -> bool {
        pair.is_target(self.target, self.found)
    }

    /// Whether it leads to the start of a function.
    pub(super) fn leads_to_function(&self, pair: ImagePair<'_>) -> bool {
        pair.moves.starting_at(self.target).is_some()
    }

    /// A difference at this word of the table at `start`.
    pub(super) fn difference(
        &self,
        pair: ImagePair<'_>,
        start: Address,
        expected: impl Into<String>,
    ) -> Difference {
        let place = format!("the word at {} of the table at {start}", self.place);
        let found = self.found.to_string();
        let offset = pair.old.offset_of(self.place.0).map(|offset| offset.0);
        Difference::new(Check::JumpTables, offset, place, expected, found)
    }

    /// The difference for a word that does not lead to the new place of its target.
    pub(super) fn stale(&self, pair: ImagePair<'_>, start: Address) -> Difference {
        self.difference(pair, start, format!("the target {}", pair.mapped(self.target)))
    }
}

/// Whether the word at `place`, added to `place`, gives the start of a function, and in the new image the start of the same one.
pub(super) fn is_own_distance(pair: ImagePair<'_>, place: Address) -> bool {
    TableWord::at(pair, place, place, 4)
        .is_some_and(|word| word.leads_to_function(pair) && pair.mapped(word.target) == word.found)
}

/// Whether an instruction of `function` starts at `target`, or the function ends there. Other words that happen to lead into
/// a function are other data.
pub(super) fn may_be_entered(pair: ImagePair<'_>, function: &Move, target: Address) -> bool {
    may_all_be_entered(pair, function, &BTreeSet::from([target]))
}

/// [`may_be_entered`] for several places, by decoding the function once.
pub(super) fn may_all_be_entered(pair: ImagePair<'_>, function: &Move, targets: &BTreeSet<Address>) -> bool {
    let mut targets = targets.iter().copied().filter(|target| *target != function.old_start).peekable();
    if targets.peek().is_none() {
        return true;
    }
    let code = pair.old.code_at(function.old_start.0, function.old_end().0);
    let bytes = code.and_then(|section| section.at(function.old_start.0, function.size)).unwrap_or_default();
    match pair.old.processor {
        Processor::Aarch64 => targets.all(|target| target.0.is_multiple_of(4)),
        Processor::X86_64 => {
            let mut decoder = Decoder::with_ip(64, bytes, function.old_start.0, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            targets.all(|target| {
                while decoder.can_decode() && decoder.ip() < target.0 {
                    decoder.decode_out(&mut instruction);
                }
                decoder.ip() == target.0
            })
        }
    }
}
