//! Relocations that the linker kept (`--emit-relocs`), as a second opinion about the code and, at a fixed address, as
//! the list of absolute addresses.
//!
//! Takes the image, its code and blocks; gives [`KeptRelocations`]: findings where code and relocations contradict
//! each other, data words that hold a distance to code, which a finished image shows nowhere else, and the fields
//! that hold an address. Entries are evidence, used only where the bytes confirm them. Linkers rewrite code
//! without touching the entries for thread-local storage and the GOT, so these are believed only in the forms that
//! the linkers write. Guarantee: an image where more disagrees than single defects explain is analysed as if it had
//! no such relocations.

mod aarch64;
mod absolute;
mod data;
mod x86_64;

use serde::Serialize;

use crate::elf::analysis::absolute_fields::AbsoluteField;
use crate::elf::analysis::blocks::{BlockIndex, Partition};
use crate::elf::analysis::references::Finding;
use crate::elf::analysis::relative_words::RelativeWord;
use crate::elf::code::CodeSpace;
use crate::elf::file::ElfFile;
use crate::elf::kept_relocations::{KeptEntry, KeptTables};
use crate::elf::relocation_types::Meaning;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::processor::Processor;

pub use aarch64::holds;
pub(crate) use data::absolute_words;

/// How often kept relocations were compared with the code, and with what result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KeptRelocationSummary {
    /// Entries that name a plain address and were compared.
    pub evaluated: u64,
    /// Entries that contradict what the bytes say.
    pub disagreeing: u64,
    /// Too many contradict, or the tables are broken: nothing was concluded from any of them.
    pub is_ignored: bool,
}

/// What the kept relocations say.
#[derive(Clone, Debug, Default)]
pub struct KeptRelocations {
    /// None when the image keeps none.
    pub summary: Option<KeptRelocationSummary>,
    /// Blocks that must stay or are not to be trusted.
    pub findings: Vec<Finding>,
    /// Words outside instructions that hold a distance to code.
    pub words: Vec<RelativeWord>,
    /// At a fixed address: fields of code and data, and slots of the GOT, that hold the address of code; by place,
    /// each once.
    pub absolute: Vec<AbsoluteField>,
}

impl KeptRelocations {
    /// Whether the tables may be believed: then a section that has one holds no other addresses.
    pub fn is_usable(&self) -> bool {
        self.summary.is_some_and(|summary| !summary.is_ignored)
    }

    /// Where the sections start whose absolute addresses are listed.
    pub(crate) fn listed_sections(&self, tables: &KeptTables<'_>) -> impl Iterator<Item = Address> {
        let usable = tables.tables.iter().filter(|_| self.is_usable());
        usable.map(|table| table.target.address)
    }

    /// Addresses outside of code that absolute entries name: what ends a table of distances.
    pub fn data_references(
        &self,
        code: &CodeSpace<'_>,
        tables: &KeptTables<'_>,
    ) -> impl Iterator<Item = Address> {
        let entries = tables.tables.iter().filter(|_| self.is_usable()).flat_map(|table| {
            let absolute = table.entries.iter().filter(|entry| matches!(entry.meaning, Meaning::Absolute(_)));
            absolute.filter_map(|entry| Some(table.values(entry, &table.symbol(entry)?))).flatten()
        });
        entries.filter(|&value| code.arena_of(value).is_none())
    }
}

/// Single contradictions pin what they name; more than these, and more than one in a thousand, say that the linker
/// wrote nonsense.
const TOLERATED_DISAGREEMENTS: u64 = 2;

/// Compares all kept relocations of `file` with its bytes.
pub fn check_kept_relocations(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
    tables: &KeptTables<'_>,
) -> KeptRelocations {
    if tables.is_empty() {
        return KeptRelocations::default();
    }
    let mut total = Outcome::default();
    for table in &tables.tables {
        total.append(match table.target.is_executable() {
            true if file.processor == Processor::Aarch64 => {
                aarch64::compare_code(file, code, partition, table)
            }
            true => x86_64::compare_code(file, code, partition, table),
            false => data::compare_data(file, code, partition, table),
        });
    }
    let Outcome { evaluated, disagreeing, findings, words, mut absolute } = total;
    absolute.sort_unstable();
    absolute.dedup();
    let has_too_many = match file.processor {
        // gold puts entries beside their instructions and loses some; no other linker disagrees anywhere.
        Processor::Aarch64 => disagreeing > 0,
        _ => disagreeing > TOLERATED_DISAGREEMENTS && disagreeing.saturating_mul(1000) > evaluated,
    };
    let is_ignored = tables.is_broken || has_too_many;
    let summary = Some(KeptRelocationSummary { evaluated, disagreeing, is_ignored });
    if is_ignored {
        return KeptRelocations { summary, ..KeptRelocations::default() };
    }
    KeptRelocations { summary, findings, words, absolute }
}

/// What comparing some entries gave.
#[derive(Default)]
struct Outcome {
    evaluated: u64,
    disagreeing: u64,
    findings: Vec<Finding>,
    words: Vec<RelativeWord>,
    absolute: Vec<AbsoluteField>,
}

impl Outcome {
    fn append(&mut self, mut other: Self) {
        self.evaluated += other.evaluated;
        self.disagreeing += other.disagreeing;
        self.findings.append(&mut other.findings);
        self.words.append(&mut other.words);
        self.absolute.append(&mut other.absolute);
    }

    fn pin(&mut self, partition: &Partition, target: Address, reason: PinReason, evidence: Address) {
        if let Some(block) = partition.block_containing(target) {
            self.findings.push(Finding::Pin(block, Pin { reason, evidence }));
        }
    }

    /// The entry and the bytes name different things: both stay.
    fn disagrees(&mut self, partition: &Partition, entry: &KeptEntry, targets: &[Address]) {
        self.disagreeing += 1;
        for &target in targets {
            self.pin(partition, target, PinReason::RelocationDisagrees, entry.place);
        }
    }

    fn distrust(&mut self, block: BlockIndex, reason: PinReason, evidence: Address) {
        self.findings.push(Finding::Distrust(block, Pin { reason, evidence }));
    }
}
