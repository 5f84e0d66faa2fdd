//! What one decoded block asks of others, as findings.

use super::fixed::keep_targets;
use crate::code_reference::{CodeForm, CodeReference};
use crate::decode::aarch64::{Operation, WORD, decode};
use crate::decoded_atom::DecodedAtom;
use crate::elf::analysis::blocks::{Block, BlockIndex, GapContent, Partition};
use crate::elf::analysis::references::Finding;
use crate::elf::code::{CodeSpace, Region};
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;

/// More blocks between the two ends of a tie than this are kept where they are instead of being moved as one.
const MAX_TIED: u32 = 16;

/// Collects the findings of one block.
pub(super) struct AtomFindings<'run, 'data> {
    code: &'run CodeSpace<'data>,
    partition: &'run Partition,
    index: BlockIndex,
    /// What it asks of others, in the order found.
    pub(super) findings: Vec<Finding>,
    /// A branch leads to the byte after the block, where compilers send impossible cases.
    pub(super) refers_to_own_end: bool,
    /// No byte of the block may be written, so everything that its bytes may refer to stays.
    pub(super) is_distrusted: bool,
}

impl<'run, 'data> AtomFindings<'run, 'data> {
    pub(super) fn new(code: &'run CodeSpace<'data>, partition: &'run Partition, index: BlockIndex) -> Self {
        Self { code, partition, index, findings: Vec::new(), refers_to_own_end: false, is_distrusted: false }
    }

    fn block(&self) -> &'run Block {
        self.partition.block(self.index)
    }

    fn pin(&mut self, block: BlockIndex, reason: PinReason, evidence: Address) {
        self.findings.push(Finding::Pin(block, Pin { reason, evidence }));
    }

    fn distrust(&mut self, pin: Pin) {
        self.is_distrusted = true;
        self.findings.push(Finding::Distrust(self.index, pin));
    }

    fn is_padding(&self, gap: usize) -> bool {
        self.partition.gaps[gap].content == GapContent::Padding
    }

    pub(super) fn add(&mut self, atom: &DecodedAtom, references: impl Iterator<Item = CodeReference>) {
        let evidence = self.block().start;
        match atom.pin {
            Some(pin) if pin.reason == PinReason::NotDecodable => self.distrust(pin),
            Some(pin) => self.findings.push(Finding::Pin(self.index, pin)),
            None => {}
        }
        if atom.is_table {
            self.distrust(Pin { reason: PinReason::NotDecodable, evidence });
        }
        if let Some(word) = atom.table_words.first() {
            // Only the code tells what the words count from, so a result could not be proven.
            self.pin(self.index, PinReason::UnprovenTable, word.place);
        }
        atom.ties.iter().for_each(|tie| self.tie(*tie));
        let reason = match atom.pin {
            Some(pin) if pin.reason == PinReason::NotDecodable => PinReason::OpaqueReference,
            Some(pin) if pin.reason == PinReason::UnresolvedJump => PinReason::ComputedAddress,
            _ => PinReason::UnpairedAddress,
        };
        let pin = Pin { reason, evidence };
        self.findings.extend(keep_targets(self.partition, &atom.possible_targets, pin));
        let pin = Pin { reason: PinReason::ComputedAddress, evidence };
        self.findings.extend(keep_targets(self.partition, &atom.summed, pin));
        references.for_each(|reference| self.refer(&reference));
    }

    /// The distance to `target` stays.
    fn tie(&mut self, target: Address) {
        let evidence = self.block().start;
        let end = self.block().end;
        let padded = self.partition.gap_containing(target).filter(|gap| self.is_padding(*gap));
        // Control runs over the end, or a short branch leads there: through padding into what follows.
        let follower = || {
            let next = BlockIndex(self.index.0 + 1);
            let block = self.partition.blocks.get(next.0 as usize)?;
            (block.arena == self.block().arena).then_some(next)
        };
        let other = match self.partition.block_containing(target) {
            Some(other) => Some(other),
            None if target == end && padded.is_some() => follower(),
            None => None,
        };
        match other {
            Some(other) if other.0.abs_diff(self.index.0) <= MAX_TIED => {
                self.findings.push(Finding::Glue(self.index, other));
            }
            Some(other) => {
                self.pin(self.index, PinReason::ShortReference, evidence);
                self.pin(other, PinReason::ShortReference, evidence);
            }
            None => {
                self.pin(self.index, PinReason::GluedToGap, evidence);
                self.findings.extend(self.partition.gap_containing(target).map(Finding::KeepGap));
            }
        }
    }

    fn refer(&mut self, reference: &CodeReference) {
        let target = reference.target;
        let evidence = reference.place;
        let is_branch = reference.form == CodeForm::Branch26;
        match self.code.region(target) {
            Region::Arena => {}
            Region::FixedCode => return,
            // An undefined weak function: its call is never made.
            Region::Mapped | Region::Outside if target == Address(0) => return,
            Region::Data | Region::Mapped | Region::Outside if !is_branch => return,
            _ => {
                return self.distrust(Pin { reason: PinReason::BranchOutsideCode, evidence });
            }
        }
        let end = self.block().end;
        if let Some(gap) = self.partition.gap_containing(target) {
            if target == end && is_branch && self.is_padding(gap) {
                self.refers_to_own_end = true;
                return;
            }
            self.findings.push(Finding::KeepGap(gap));
            if target == end {
                self.pin(self.index, PinReason::PointerInside, evidence);
            }
            return;
        }
        let Some(other) = self.partition.block_containing(target) else { return };
        if other == self.index {
            return;
        }
        if target == end {
            // The end of this block and the start of the next are one address: keeping both together keeps both meanings.
            self.findings.push(Finding::Glue(self.index, other));
        }
        if is_branch {
            return;
        }
        if self.is_access(reference) {
            self.pin(other, PinReason::ReadAsData, evidence);
        } else if !self.partition.block(other).is_entry(target) {
            self.pin(other, PinReason::InsideAddressed, evidence);
        }
    }

    /// Whether the instruction reads or writes what it refers to.
    fn is_access(&self, reference: &CodeReference) -> bool {
        let place = reference.place;
        let word =
            self.code.bytes(place..place.plus(WORD)).first_chunk().map(|word| u32::from_le_bytes(*word));
        word.is_some_and(|word| {
            matches!(decode(word, place), Operation::Access(..) | Operation::LoadLiteral(..))
        })
    }
}
