//! Relocations that the linker kept (`--emit-relocs`), as a second opinion about the code.
//!
//! Takes the image, its code and blocks; gives [`KeptRelocations`]: findings where code and relocations contradict
//! each other, and data words that hold a distance to code, which nothing else in a finished image tells. Only
//! entries that name a plain address are compared: linkers rewrite code without touching the entries for thread-local
//! storage and the GOT. Guarantee: an image where more disagrees than single defects explain is analysed as if it
//! had no such relocations.
//! Source: System V ABI AMD64, "Relocation Types".

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use object::LittleEndian;
use object::elf::Rela64;
use object::pod;
use rayon::prelude::*;
use serde::Serialize;

use crate::address::Address;
use crate::image::analysis::blocks::{BlockIndex, GapContent, Partition};
use crate::image::analysis::pins::{Pin, PinReason};
use crate::image::analysis::references::Finding;
use crate::image::analysis::relative_words::RelativeWord;
use crate::image::code::{CodeSpace, Region};
use crate::image::elf::file::ElfFile;
use crate::image::elf::section::{Section, SectionIndex};
use crate::image::elf::symbol::{Symbol, SymbolTable};

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
}

/// Single contradictions pin what they name; more than these, and more than one in a thousand, say that the linker
/// wrote nonsense.
const TOLERATED_DISAGREEMENTS: u64 = 2;

const R_64: u32 = object::elf::R_X86_64_64.0;
const R_PC32: u32 = object::elf::R_X86_64_PC32.0;
const R_PLT32: u32 = object::elf::R_X86_64_PLT32.0;
const R_32: u32 = object::elf::R_X86_64_32.0;
const R_32S: u32 = object::elf::R_X86_64_32S.0;
const R_TLSGD: u32 = object::elf::R_X86_64_TLSGD.0;
const R_TLSLD: u32 = object::elf::R_X86_64_TLSLD.0;
const R_PC64: u32 = object::elf::R_X86_64_PC64.0;
const R_GOTOFF64: u32 = object::elf::R_X86_64_GOTOFF64.0;
const R_PLTOFF64: u32 = object::elf::R_X86_64_PLTOFF64.0;

/// Compares all kept relocations of `file` with its bytes.
pub fn check_kept_relocations(
    file: &ElfFile<'_>,
    code: &CodeSpace<'_>,
    partition: &Partition,
) -> KeptRelocations {
    let sections: Vec<(&Section<'_>, &Section<'_>)> = kept_sections(file).collect();
    if sections.is_empty() {
        return KeptRelocations::default();
    }
    let mut total = Outcome::default();
    let mut is_broken = false;
    for (section, target) in sections {
        match Table::read(file, section, target) {
            Some(table) if target.is_executable() => total.append(compare_code(code, partition, &table)),
            Some(table) => total.append(compare_data(code, &table)),
            None => is_broken = true,
        }
    }
    let Outcome { evaluated, disagreeing, findings, words } = total;
    let has_too_many = disagreeing > TOLERATED_DISAGREEMENTS && disagreeing.saturating_mul(1000) > evaluated;
    let is_ignored = is_broken || has_too_many;
    let summary = Some(KeptRelocationSummary { evaluated, disagreeing, is_ignored });
    if is_ignored {
        return KeptRelocations { summary, ..KeptRelocations::default() };
    }
    KeptRelocations { summary, findings, words }
}

/// Pairs of relocation section and loaded section it applies to. Unwind entries have a format that is parsed as such,
/// and linkers leave wrong entries for those that they merged.
fn kept_sections<'file, 'data>(
    file: &'file ElfFile<'data>,
) -> impl Iterator<Item = (&'file Section<'data>, &'file Section<'data>)> {
    file.sections
        .iter()
        .filter(|section| section.kind == object::elf::SHT_RELA.0 && !section.is_loaded() && section.size > 0)
        .filter_map(|section| Some((section, file.section_at(SectionIndex(section.info))?)))
        .filter(|(_, target)| target.is_loaded() && target.has_bytes() && target.name != b".eh_frame")
}

/// One entry; its symbol is known to exist and its place to lie in the target section.
#[derive(Clone, Copy)]
struct Entry {
    place: Address,
    kind: u32,
    symbol: u32,
    addend: u64,
}

/// One section of relocations.
struct Table<'file, 'data> {
    file: &'file ElfFile<'data>,
    symbols: SymbolTable<'data>,
    /// By place.
    entries: Vec<Entry>,
}

impl<'file, 'data> Table<'file, 'data> {
    /// None when an index or a place is out of range.
    fn read(file: &'file ElfFile<'data>, section: &Section<'data>, target: &Section<'data>) -> Option<Self> {
        let raw = pod::slice_from_all_bytes::<Rela64<LittleEndian>>(file.section_bytes(section)).ok()?;
        let symbols = SymbolTable::parse_section(file, SectionIndex(section.link)).ok()?;
        let mut entries = raw
            .iter()
            .map(|entry| {
                let information = entry.r_info.get(LittleEndian);
                let entry = Entry {
                    place: Address(entry.r_offset.get(LittleEndian)),
                    kind: information as u32,
                    symbol: (information >> 32) as u32,
                    addend: entry.r_addend.get(LittleEndian) as u64,
                };
                let is_known = (entry.symbol as usize) < symbols.len() && target.contains(entry.place);
                (is_known || entry.kind == 0).then_some(entry)
            })
            .collect::<Option<Vec<Entry>>>()?;
        entries.sort_by_key(|entry| entry.place);
        Some(Self { file, symbols, entries })
    }

    fn symbol(&self, entry: &Entry) -> Option<Symbol<'data>> {
        self.symbols.get(entry.symbol as usize)
    }

    /// S + A. A section's symbol may have a value that the linker forgot to set, so its header counts as well.
    fn values(&self, entry: &Entry, symbol: &Symbol<'_>) -> [Address; 2] {
        let header = symbol.defining_section().filter(|_| symbol.is_section());
        let header = header.and_then(|index| self.file.section_at(index));
        let header = header.map_or(symbol.value, |section| section.address);
        [symbol.value.plus(entry.addend), header.plus(entry.addend)]
    }

    /// What the word of `width` bytes at `place` leads to, counted from itself.
    fn stored_target(&self, place: Address, width: u64) -> Option<Address> {
        let bytes = self.file.bytes_at(place, width)?;
        let distance = match bytes.try_into() {
            Ok(four) => i64::from(i32::from_le_bytes(four)),
            Err(_) => i64::from_le_bytes(bytes.try_into().ok()?),
        };
        Some(place.plus(distance as u64))
    }

    /// What a word at the entry's place, which is no part of an instruction, refers to; none unless that is code.
    fn relative_word(&self, code: &CodeSpace<'_>, entry: &Entry, run_start: Address) -> Option<RelativeWord> {
        let symbol = self.symbol(entry)?;
        let [value, other] = self.values(entry, &symbol);
        let value = if code.arena_of(value).is_some() { value } else { other };
        let named = (!symbol.is_section() && code.arena_of(symbol.value).is_some()).then_some(symbol.value);
        // The sum for a late entry of a table may lie behind the code that the entry leads to.
        let section = symbol.defining_section().and_then(|index| self.file.section_at(index));
        let is_code = section.is_some_and(Section::is_executable) || code.arena_of(value).is_some();
        is_code.then_some(RelativeWord { place: entry.place, run_start, value, named })
    }
}

/// What comparing some entries gave.
#[derive(Default)]
struct Outcome {
    evaluated: u64,
    disagreeing: u64,
    findings: Vec<Finding>,
    words: Vec<RelativeWord>,
}

impl Outcome {
    fn append(&mut self, mut other: Self) {
        self.evaluated += other.evaluated;
        self.disagreeing += other.disagreeing;
        self.findings.append(&mut other.findings);
        self.words.append(&mut other.words);
    }

    fn pin(&mut self, partition: &Partition, target: Address, reason: PinReason, evidence: Address) {
        if let Some(block) = partition.block_containing(target) {
            self.findings.push(Finding::Pin(block, Pin { reason, evidence }));
        }
    }
}

/// An address field as the decoder sees it.
struct DecodedField {
    place: Address,
    /// One past the instruction.
    end: Address,
    target: Address,
}

/// All address fields of `range`, by place; none when some bytes are no instructions.
fn address_fields(code: &CodeSpace<'_>, range: Range<Address>) -> Option<Vec<DecodedField>> {
    let mut decoder = Decoder::with_ip(64, code.bytes(range.clone()), range.start.0, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut fields = Vec::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return None;
        }
        let constants = decoder.get_constant_offsets(&instruction);
        let (target, offset) = if instruction.op0_kind() == OpKind::NearBranch64 {
            (instruction.near_branch_target(), constants.immediate_offset())
        } else if instruction.is_ip_rel_memory_operand() {
            (instruction.ip_rel_memory_address(), constants.displacement_offset())
        } else {
            continue;
        };
        fields.push(DecodedField {
            place: Address(instruction.ip()).plus(offset as u64),
            end: Address(instruction.next_ip()),
            target: Address(target),
        });
    }
    Some(fields)
}

fn compare_code(code: &CodeSpace<'_>, partition: &Partition, table: &Table<'_, '_>) -> Outcome {
    let groups = groups(code, partition, &table.entries);
    let outcomes: Vec<Outcome> = groups
        .into_par_iter()
        .with_min_len(16)
        .map(|(owner, entries)| match owner {
            Owner::Block(block) => compare_block(code, partition, table, entries, block),
            Owner::Gap(gap) => compare_gap(code, partition, table, entries, gap),
        })
        .collect();
    let mut total = Outcome::default();
    outcomes.into_iter().for_each(|outcome| total.append(outcome));
    total
}

/// What holds the places of a run of entries.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Block(BlockIndex),
    Gap(usize),
}

/// Runs of entries in one block or gap. The linker's own stubs have neither: they stay as they are.
fn groups(code: &CodeSpace<'_>, partition: &Partition, entries: &[Entry]) -> Vec<(Owner, Range<usize>)> {
    let mut groups: Vec<(Owner, Range<usize>)> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        if code.arena_of(entry.place).is_none() {
            continue;
        }
        let block = partition.block_containing(entry.place).map(Owner::Block);
        let Some(owner) = block.or_else(|| partition.gap_containing(entry.place).map(Owner::Gap)) else {
            continue;
        };
        match groups.last_mut() {
            Some((last, range)) if *last == owner => range.end = index + 1,
            _ => groups.push((owner, index..index + 1)),
        }
    }
    groups
}

fn compare_block(
    code: &CodeSpace<'_>,
    partition: &Partition,
    table: &Table<'_, '_>,
    range: Range<usize>,
    index: BlockIndex,
) -> Outcome {
    let mut outcome = Outcome::default();
    let block = partition.block(index);
    // Undecodable blocks stay anyway, with all that they may refer to.
    let Some(fields) = address_fields(code, block.start..block.end) else { return outcome };
    for position in range {
        let entry = &table.entries[position];
        let Some(symbol) = table.symbol(entry) else { continue };
        let values = table.values(entry, &symbol);
        let evidence = entry.place;
        match entry.kind {
            R_PC32 | R_PLT32 if !belongs_to_thread_local(&table.entries, position) => {
                outcome.evaluated += 1;
                let found = fields.binary_search_by_key(&entry.place, |field| field.place).ok();
                let Some(field) = found.map(|found| &fields[found]) else {
                    outcome.disagreeing += 1;
                    let pin = Pin { reason: PinReason::RelocationWithoutField, evidence };
                    outcome.findings.push(Finding::Distrust(index, pin));
                    continue;
                };
                let wanted = values.map(|value| value.plus(field.end.distance_from(field.place)));
                if !agrees(code, field, &symbol, wanted) {
                    outcome.disagreeing += 1;
                    for target in [block.start, field.target, wanted[0], wanted[1]] {
                        outcome.pin(partition, target, PinReason::RelocationDisagrees, evidence);
                    }
                }
            }
            // The loader would have to rewrite the code, and it has no relocation for that.
            R_64 | R_32 | R_32S if !code.is_fixed_address => {
                outcome.evaluated += 1;
                let is_code = |value: &Address| code.arena_of(*value).is_some();
                if symbol.defining_section().is_some() && values.iter().any(is_code) {
                    outcome.disagreeing += 1;
                    let pin = Pin { reason: PinReason::RelocationDisagrees, evidence };
                    outcome.findings.push(Finding::Distrust(index, pin));
                    for target in values {
                        outcome.pin(partition, target, PinReason::RelocationDisagrees, evidence);
                    }
                }
            }
            R_PC64 | R_GOTOFF64 | R_PLTOFF64 => {
                for target in [values[0], values[1], symbol.value] {
                    outcome.pin(partition, target, PinReason::ComputedAddress, evidence);
                }
            }
            _ => {}
        }
    }
    outcome
}

/// A gap is never written and what its instructions refer to stays; a word between them looks like an instruction.
fn compare_gap(
    code: &CodeSpace<'_>,
    partition: &Partition,
    table: &Table<'_, '_>,
    range: Range<usize>,
    gap: usize,
) -> Outcome {
    let gap = &partition.gaps[gap];
    let fields = match gap.content {
        GapContent::Code => address_fields(code, gap.start..gap.end).unwrap_or_default(),
        GapContent::Padding | GapContent::Opaque => Vec::new(),
    };
    let mut outcome = Outcome::default();
    for entry in &table.entries[range] {
        let is_field = fields.binary_search_by_key(&entry.place, |field| field.place).is_ok();
        if matches!(entry.kind, R_PC32 | R_PLT32 | R_PC64) && !is_field {
            outcome.words.extend(table.relative_word(code, entry, entry.place));
        }
    }
    outcome
}

/// Whether the field leads where the relocation says, or where the linker leads references of this kind instead.
fn agrees(code: &CodeSpace<'_>, field: &DecodedField, symbol: &Symbol<'_>, wanted: [Address; 2]) -> bool {
    if wanted.contains(&field.target) {
        return true;
    }
    let is_undefined = symbol.section == 0;
    let is_local = symbol.binding == object::elf::STB_LOCAL.0;
    let is_indirect = symbol.kind == object::elf::STT_GNU_IFUNC.0;
    match code.region(field.target) {
        Region::Arena => false,
        // A stub: for imports, what another image may replace, and functions that are chosen at start.
        Region::FixedCode => is_undefined || is_indirect || !is_local,
        // Nothing in data moves, so it matters only that the relocation does not name code.
        Region::Data | Region::Mapped | Region::Outside => {
            is_undefined || wanted.iter().all(|target| code.arena_of(*target).is_none())
        }
    }
}

/// The call of a thread-local sequence: the linker may have replaced all of it, and its entries stay.
fn belongs_to_thread_local(entries: &[Entry], position: usize) -> bool {
    /// From the field of the `lea` to the field of the call; the longest form has prefixes between.
    const LONGEST_SEQUENCE: u64 = 12;
    let entry = &entries[position];
    let before = position.checked_sub(1).map(|before| &entries[before]);
    before.is_some_and(|before| {
        matches!(before.kind, R_TLSGD | R_TLSLD)
            && entry.place.distance_from(before.place) <= LONGEST_SEQUENCE
    })
}

fn compare_data(code: &CodeSpace<'_>, table: &Table<'_, '_>) -> Outcome {
    let mut outcome = Outcome::default();
    let mut run: Option<(Address, Address)> = None;
    for entry in &table.entries {
        let width = match entry.kind {
            R_PC32 | R_PLT32 => 4,
            R_PC64 => 8,
            _ => continue,
        };
        let start = run.filter(|(_, end)| *end == entry.place).map_or(entry.place, |(start, _)| start);
        run = Some((start, entry.place.plus(width)));
        let Some(word) = table.relative_word(code, entry, start) else { continue };
        let Some(stored) = table.stored_target(entry.place, width) else { continue };
        outcome.evaluated += 1;
        outcome.words.push(word);
        // Where a reference goes through a stub, the word holds the way to the stub.
        if stored != word.value && code.region(stored) != Region::FixedCode {
            outcome.disagreeing += 1;
            outcome.words.push(RelativeWord { value: stored, named: None, ..word });
        }
    }
    outcome
}
