//! Tables of four-byte distances from the table to places in a function.
//!
//! Two directions. Whatever changed in a data section must be a table word that followed its target. And the words
//! that a dispatching function certainly reads must have followed it: from each table base that it takes, up to
//! the first word that leaves the function or the next address that any instruction refers to.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::bytes::displacement_at;
use super::functions::TableUse;
use super::pair::{ImagePair, Ledger};
use super::processor::Processor;
use super::recover::Move;
use super::report::{Check, Difference};
use crate::address::Address;

/// Bytes of a table word.
const WORD: u64 = 4;

/// What the code of the image says about its tables.
pub(super) struct TableEvidence {
    /// Tables with their users, sorted by base.
    tables: Vec<TableUse>,
    /// All data addresses that instructions refer to, sorted.
    references: Vec<u64>,
}

impl TableEvidence {
    /// Collects the uses of all functions and the references of all code.
    pub(super) fn new(mut tables: Vec<TableUse>, mut references: Vec<u64>) -> Self {
        tables.sort_unstable();
        tables.dedup();
        references.sort_unstable();
        references.dedup();
        Self { tables, references }
    }

    /// The next address behind `address` that an instruction refers to: no table reaches over it.
    fn next_reference(&self, address: u64) -> u64 {
        let after = self.references.partition_point(|&reference| reference <= address);
        self.references.get(after).copied().unwrap_or(u64::MAX)
    }

    /// From the nearest table base at or before `address`, if no other reference lies between, to the next reference.
    fn table_around(&self, address: u64) -> Option<Range<u64>> {
        let after = self.references.partition_point(|&reference| reference <= address);
        let base = *self.references[..after].last()?;
        let end = self.references.get(after).copied().unwrap_or(u64::MAX);
        self.tables.binary_search_by_key(&base, |table| table.base).is_ok().then_some(base..end)
    }
}

/// One word of a table: what it stood for and what it stands for now.
struct TableWord {
    target: u64,
    found: u64,
}

fn word_at(pair: ImagePair<'_>, base: u64, place: u64) -> Option<TableWord> {
    let section = pair.old.section_at(place).filter(|section| !section.is_code())?;
    section.at(place, WORD)?;
    let offset = usize::try_from(section.offset + (place - section.address)).ok()?;
    Some(TableWord {
        target: base.wrapping_add(displacement_at(pair.old.bytes, offset)?),
        found: base.wrapping_add(displacement_at(pair.new.bytes, offset)?),
    })
}

/// Checks the words that the dispatches of moved functions read.
pub(super) fn check_dispatched_words(pair: ImagePair<'_>, evidence: &TableEvidence, ledger: &mut Ledger<'_>) {
    let mut words = 0;
    for table in &evidence.tables {
        let Some(owner) = pair.moves.as_slice().get(table.owner as usize) else { continue };
        let limit = evidence.next_reference(table.base);
        let mut place = table.base;
        while let Some(word) = (place < limit).then(|| word_at(pair, table.base, place)).flatten() {
            let is_own = (owner.old_start.0..=owner.old_end().0).contains(&word.target);
            // A word that leaves the function may be a split-off part or the end of the table: it is not demanded,
            // but one that followed its target shows that the table goes on.
            let followed = word.found != word.target && pair.is_target(word.target, word.found);
            if !is_own && !followed {
                break;
            }
            let stayed = is_own && !pair.is_target(word.target, word.found);
            if stayed && !may_be_entered(pair, owner, word.target) {
                break;
            }
            words += 1;
            if stayed {
                let offset = pair.old.offset_of(place);
                ledger.findings.differs(Difference::new(
                    Check::JumpTables,
                    offset,
                    format!("the word at {} of the table at {}", Address(place), Address(table.base)),
                    format!("the target {:#x}", pair.mapped(word.target)),
                    format!("{:#x}", word.found),
                ));
                // One word shows it; decoding for each of them would be work for hostile tables.
                break;
            }
            place += WORD;
        }
    }
    ledger.findings.checked(Check::JumpTables, "words", words);
}

/// Whether an instruction of `function` starts at `target`, or it ends there: other numbers that happen to lead into a
/// function are data of another kind.
fn may_be_entered(pair: ImagePair<'_>, function: &Move, target: u64) -> bool {
    let code = pair.old.code_at(function.old_start.0, function.old_end().0);
    let bytes = code.and_then(|section| section.at(function.old_start.0, function.size)).unwrap_or_default();
    match pair.old.processor {
        Processor::Aarch64 => target.is_multiple_of(WORD),
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

/// Walks differing bytes in file order and says which of them are table words that followed their targets.
pub(super) struct TableExplainer<'a> {
    pair: ImagePair<'a>,
    evidence: &'a TableEvidence,
    known: Option<KnownTable>,
}

/// The last table looked at.
struct KnownTable {
    /// From its base to the next reference.
    range: Range<u64>,
    /// How far its words are known to point into functions.
    checked_to: u64,
}

impl<'a> TableExplainer<'a> {
    /// An explainer that has seen nothing yet.
    pub(super) fn new(pair: ImagePair<'a>, evidence: &'a TableEvidence) -> Self {
        Self { pair, evidence, known: None }
    }

    /// The first file position of `run` that is no table word, or no table word that followed its target.
    pub(super) fn unexplained(&mut self, run: &Range<usize>) -> Option<usize> {
        let mut position = run.start;
        while position < run.end {
            match self.word_end(position) {
                Some(end) => position = end,
                None => return Some(position),
            }
        }
        None
    }

    /// The file position behind the table word that covers `position`, if it is one.
    fn word_end(&mut self, position: usize) -> Option<usize> {
        let section = self.pair.old.sections.iter().find(|section| {
            section.is_loaded()
                && (section.offset..section.offset + section.bytes.len() as u64).contains(&(position as u64))
        })?;
        let address = section.address + (position as u64 - section.offset);
        let (range, mut checked_to) = match &self.known {
            Some(known) if known.range.contains(&address) => (known.range.clone(), known.checked_to),
            _ => {
                let range = self.evidence.table_around(address)?;
                (range.clone(), range.start)
            }
        };
        let base = range.start;
        let place = address - (address - base) % WORD;
        // Every word from the base on must point into a function: a table has no holes.
        let points = |place| Some(self.points_into_function(word_at(self.pair, base, place)?.target));
        while checked_to <= place && points(checked_to) == Some(true) {
            checked_to += WORD;
        }
        self.known = Some(KnownTable { range, checked_to });
        if checked_to <= place {
            return None;
        }
        let word = word_at(self.pair, base, place)?;
        if !self.pair.is_target(word.target, word.found) {
            return None;
        }
        usize::try_from(section.offset + (place - section.address) + WORD).ok()
    }

    fn points_into_function(&self, target: u64) -> bool {
        let moves = self.pair.moves;
        moves.containing(Address(target)).or_else(|| moves.ending_at(Address(target))).is_some()
    }
}
