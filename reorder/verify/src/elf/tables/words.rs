//! One word of a table: what it stood for and what it stands for now.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use crate::bytes::{displacement_at, u64_at};
use crate::elf::pair::ImagePair;
use crate::moves::Move;
use crate::processor::Processor;
use crate::report::{Check, Difference};
use reorder_base::address::Address;

/// A word and the address that it is added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableWord {
    /// Its own address.
    pub(super) place: u64,
    /// Where it led.
    pub(super) target: u64,
    /// Where it leads.
    pub(super) found: u64,
    /// Whether its bytes are others.
    pub(super) has_changed: bool,
}

impl TableWord {
    /// The word of `width` bytes at `place`, which is added to `anchor`; nothing in code and outside of the file.
    pub(super) fn at(pair: ImagePair<'_>, anchor: u64, place: u64, width: u8) -> Option<Self> {
        let section = pair.old.section_at(place).filter(|section| !section.is_code())?;
        section.at(place, u64::from(width))?;
        let offset = usize::try_from(section.offset + (place - section.address)).ok()?;
        let read = |bytes| if width == 8 { u64_at(bytes, offset) } else { displacement_at(bytes, offset) };
        let (before, after) = (read(pair.old.bytes)?, read(pair.new.bytes)?);
        Some(Self {
            place,
            target: anchor.wrapping_add(before),
            found: pair.mapped(anchor).wrapping_add(after),
            has_changed: before != after,
        })
    }

    /// Whether it leads where its target went.
    pub(super) fn is_followed(&self, pair: ImagePair<'_>) -> bool {
        pair.is_target(self.target, self.found)
    }

    /// What is wrong with it, for people.
    pub(super) fn difference(
        &self,
        pair: ImagePair<'_>,
        start: u64,
        expected: impl Into<String>,
    ) -> Difference {
        let place = format!("the word at {} of the table at {}", Address(self.place), Address(start));
        let found = format!("{:#x}", self.found);
        Difference::new(Check::JumpTables, pair.old.offset_of(self.place), place, expected, found)
    }

    /// It led somewhere and does not lead to where that is now.
    pub(super) fn stale(&self, pair: ImagePair<'_>, start: u64) -> Difference {
        self.difference(pair, start, format!("the target {:#x}", pair.mapped(self.target)))
    }
}

/// Whether an instruction of `function` starts at `target`, or it ends there: other numbers that happen to lead into a
/// function are data of another kind.
pub(super) fn may_be_entered(pair: ImagePair<'_>, function: &Move, target: u64) -> bool {
    if target == function.old_start.0 {
        return true;
    }
    let code = pair.old.code_at(function.old_start.0, function.old_end().0);
    let bytes = code.and_then(|section| section.at(function.old_start.0, function.size)).unwrap_or_default();
    match pair.old.processor {
        Processor::Aarch64 => target.is_multiple_of(4),
        Processor::X86_64 => {
            let mut decoder = Decoder::with_ip(64, bytes, function.old_start.0, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            while decoder.can_decode() && decoder.ip() < target {
                decoder.decode_out(&mut instruction);
            }
            decoder.ip() == target
        }
    }
}
