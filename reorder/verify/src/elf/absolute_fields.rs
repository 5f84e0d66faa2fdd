//! The addresses stored in a program at a fixed address, as listed by the relocations that the linker kept.
//!
//! Takes only the old image; gives the fields whose bytes agree with their entry, and which sections have a list at all.
//! Entries are read and judged independently of the code that moved the functions.

use goblin::elf::header::ET_EXEC;
use goblin::elf::reloc::{
    R_AARCH64_ABS32, R_AARCH64_ABS64, R_AARCH64_ADR_GOT_PAGE, R_AARCH64_GOT_LD_PREL19,
    R_AARCH64_LD64_GOT_LO12_NC, R_AARCH64_LD64_GOTOFF_LO15, R_AARCH64_LD64_GOTPAGE_LO15, R_X86_64_32,
    R_X86_64_32S, R_X86_64_64, R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_REX_GOTPCRELX,
};
use goblin::elf::section_header::{SHN_UNDEF, SHT_RELA};
use goblin::elf::sym::{STT_GNU_IFUNC, STT_SECTION};

use super::compact_relocations::{CompactEntry, SHT_CREL, compact_entries};
use super::pointers::RELA_SIZE;
use super::symbol_walk::{SymbolView, symbol_at};
use crate::bytes::{range, u32_at, u64_at};
use crate::elf::view::{ElfView, SectionView};
use crate::processor::Processor;
use reorder_base::address::Address;

/// x86-64 references through the GOT that linkers may replace by the address itself.
const SLOT_TYPES: [u32; 3] = [R_X86_64_GOTPCREL, R_X86_64_GOTPCRELX, R_X86_64_REX_GOTPCRELX];
/// A slot's entry counts from the end of its four bytes.
const SLOT_BIAS: u64 = 4;

/// The type of an empty entry, the same for both processors.
const NONE: u32 = 0;
/// Another empty type of AArch64, written by older tools.
const WITHDRAWN: u32 = 256;
/// AArch64 instructions that read a slot of the GOT; the instructions that linkers put there instead hold no whole address.
const READ_SLOT_TYPES: [u32; 5] = [
    R_AARCH64_ADR_GOT_PAGE,
    R_AARCH64_LD64_GOT_LO12_NC,
    R_AARCH64_LD64_GOTOFF_LO15,
    R_AARCH64_LD64_GOTPAGE_LO15,
    R_AARCH64_GOT_LD_PREL19,
];

/// One stored address of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct AbsoluteField {
    /// Where it is stored in the old image.
    pub(crate) place: Address,
    /// Four or eight bytes.
    pub(crate) width: usize,
    /// The address.
    pub(crate) value: Address,
}

impl AbsoluteField {
    /// The value in `bytes`, which are the field's own; zero-extended.
    pub(crate) fn read(&self, bytes: &[u8]) -> Option<u64> {
        if self.width == 8 { u64_at(bytes, 0) } else { u32_at(bytes, 0).map(u64::from) }
    }
}

/// An entry that names code although the bytes hold neither that address nor a replacement for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Contradiction {
    /// Where the entry points.
    pub(crate) place: Address,
    /// What is stored there.
    pub(crate) stored: u64,
    /// What the entry says.
    pub(crate) named: Address,
    /// The entry names a function that is selected at startup, and the bytes lead into another code section: to the stub
    /// that stands for it, because its own address is not known at link time (System V ABI, `STT_GNU_IFUNC`).
    may_be_stub: bool,
}

/// The stored addresses that the kept relocations of an image at a fixed address list.
#[derive(Clone, Debug, Default)]
pub(crate) struct AbsoluteFields {
    fields: Vec<AbsoluteField>,
    /// Addresses of the sections that have a list.
    listed: Vec<Address>,
    /// Symbols that code reaches through the GOT.
    slot_values: Vec<Address>,
    /// Entries that disagree with the bytes.
    pub(crate) contradictions: Vec<Contradiction>,
}

impl AbsoluteFields {
    /// Reads all kept relocations of `image`; empty when they are damaged or too many disagree with the bytes.
    pub(crate) fn collect(image: &ElfView<'_>) -> Self {
        /// Up to this many contradictions are reported. More than that, if they exceed one in a thousand, make the whole
        /// list worthless.
        const TOLERATED: usize = 2;
        let mut found = Self::default();
        if image.header.e_type != ET_EXEC {
            return found;
        }
        let mut evaluated = 0usize;
        for section in &image.sections {
            let Some(target) = image.sections.get(section.info as usize) else { continue };
            let is_kept = matches!(section.kind, SHT_RELA | SHT_CREL) && !section.is_loaded();
            if !is_kept || section.bytes.is_empty() || !target.is_loaded() || target.name == b".eh_frame" {
                continue;
            }
            let symbols = image.sections.get(section.link as usize);
            let Some(entries) = entries(section).zip(symbols) else { return Self::default() };
            let table = Table { image, target, symbols: entries.1 };
            for entry in &entries.0 {
                match table.judge(entry, &mut found) {
                    Some(is_evaluated) => evaluated += usize::from(is_evaluated),
                    None => return Self::default(),
                }
            }
            found.listed.push(Address(target.address));
        }
        let wrong = found.contradictions.iter().filter(|wrong| !wrong.may_be_stub).count();
        if wrong > TOLERATED && wrong.saturating_mul(1000) > evaluated {
            return Self::default();
        }
        found.fields.sort_unstable();
        found.fields.dedup();
        found.slot_values.sort_unstable();
        found
    }

    /// All fields, by place.
    pub(crate) fn all(&self) -> &[AbsoluteField] {
        &self.fields
    }

    /// The fields that start in `[start, end)`.
    pub(crate) fn within(&self, start: Address, end: Address) -> &[AbsoluteField] {
        let first = self.fields.partition_point(|field| field.place < start);
        let last = self.fields.partition_point(|field| field.place < end);
        self.fields.get(first..last).unwrap_or_default()
    }

    /// Whether the relocations list all addresses that `section` stores.
    pub(crate) fn lists(&self, section: &SectionView<'_>) -> bool {
        self.listed.contains(&Address(section.address))
    }

    /// Whether a slot of the GOT may be the address `value`.
    pub(crate) fn is_slot_value(&self, value: Address) -> bool {
        self.slot_values.binary_search(&value).is_ok()
    }
}

/// The entries of a table, plain or compact; `None` when it is damaged.
fn entries(section: &SectionView<'_>) -> Option<Vec<CompactEntry>> {
    if section.kind == SHT_CREL {
        return compact_entries(section.bytes);
    }
    let records = section.bytes.chunks_exact(RELA_SIZE);
    records
        .map(|record| {
            let information = u64_at(record, 8)?;
            Some(CompactEntry {
                place: u64_at(record, 0)?,
                symbol: (information >> 32) as u32,
                kind: information as u32,
                addend: u64_at(record, 16)?,
            })
        })
        .collect()
}

/// One relocation table and the section that it applies to.
struct Table<'a> {
    image: &'a ElfView<'a>,
    target: &'a SectionView<'a>,
    symbols: &'a SectionView<'a>,
}

impl Table<'_> {
    /// Records what `entry` says. Gives whether it names a stored address at all; `None` when its symbol or place does not
    /// exist.
    fn judge(&self, entry: &CompactEntry, found: &mut AbsoluteFields) -> Option<bool> {
        let processor = self.image.processor;
        if entry.kind == NONE || processor == Processor::Aarch64 && entry.kind == WITHDRAWN {
            return Some(false);
        }
        let symbol = symbol_at(self.symbols, entry.symbol as usize)?;
        let within = entry.place.checked_sub(self.target.address)?;
        if processor == Processor::Aarch64 && READ_SLOT_TYPES.contains(&entry.kind) && self.is_code(&symbol) {
            found.slot_values.push(Address(symbol.value));
        }
        let is_slot = processor == Processor::X86_64 && SLOT_TYPES.contains(&entry.kind);
        let width = match (processor, entry.kind) {
            (Processor::X86_64, R_X86_64_64) | (Processor::Aarch64, R_AARCH64_ABS64) => 8,
            (Processor::X86_64, R_X86_64_32 | R_X86_64_32S) | (Processor::Aarch64, R_AARCH64_ABS32) => 4,
            _ if is_slot => 4,
            _ => return (within < self.target.bytes.len() as u64).then_some(false),
        };
        let field = AbsoluteField { place: Address(entry.place), width, value: Address(0) };
        let stored = field.read(range(self.target.bytes, within, width as u64)?)?;
        if !self.is_code(&symbol) {
            return Some(!is_slot);
        }
        if is_slot {
            found.slot_values.push(Address(symbol.value));
        }
        let bias = if is_slot { SLOT_BIAS } else { 0 };
        let readings = self.readings(&symbol).map(|base| base.wrapping_add(entry.addend).wrapping_add(bias));
        let in_width = |value: u64| if width == 8 { value } else { u64::from(value as u32) };
        match readings.into_iter().find(|&value| in_width(value) == stored) {
            Some(value) => found.fields.push(AbsoluteField { value: Address(value), ..field }),
            None if is_slot => {}
            None => {
                let may_be_stub = self.may_be_stub(&symbol, stored);
                let named = Address(readings[0]);
                found.contradictions.push(Contradiction { place: field.place, stored, named, may_be_stub });
            }
        }
        Some(true)
    }

    /// The symbol's value, and for a section's symbol the address in the section's header.
    fn readings(&self, symbol: &SymbolView) -> [u64; 2] {
        let section = self.image.sections.get(symbol.section as usize);
        let header = section.filter(|_| symbol.kind == STT_SECTION).map_or(symbol.value, |it| it.address);
        [symbol.value, header]
    }

    /// Whether `stored` may be the stub of a function that is selected at startup.
    fn may_be_stub(&self, symbol: &SymbolView, stored: u64) -> bool {
        let home = self.image.sections.get(symbol.section as usize);
        let stub = self.image.section_at(stored).filter(|section| section.is_code());
        symbol.kind == STT_GNU_IFUNC
            && home.zip(stub).is_some_and(|(home, stub)| home.address != stub.address)
    }

    fn is_code(&self, symbol: &SymbolView) -> bool {
        let section = self.image.sections.get(symbol.section as usize);
        symbol.section != SHN_UNDEF && section.is_some_and(|section| section.is_code())
    }
}
