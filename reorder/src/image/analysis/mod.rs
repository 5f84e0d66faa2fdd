//! From headers to units: everything that must be known before a function may move.
//!
//! In: a parsed image and its functions. Out: [`Analysis`]. Guarantee: a unit without a pin is referred to only
//! through fields, tables and pointers that are listed here.

pub mod absolute_addresses;
pub mod blocks;
pub mod computed_addresses;
pub mod dispatch;
pub mod gap_references;
pub mod jump_tables;
pub mod kept_relocations;
pub mod obligations;
pub mod pins;
pub mod pointers;
pub mod references;
pub mod relative_pointers;
pub mod relative_words;
pub mod stub_arrays;
pub mod table_bound;
pub mod units;

use std::ops::Range;

use rayon::prelude::*;

use crate::address::Address;
use crate::error::Result;
use crate::image::boundaries::Boundaries;
use crate::image::code::CodeSpace;
use crate::image::decode::x86_64::{DecodedBlock, Field, decode_block};
use crate::image::elf::dynamic::{DynamicEntry, dynamic_entries};
use crate::image::elf::file::ElfFile;
use crate::image::elf::relocation::{LoaderAction, LoaderRelocation, loader_relocations};
use crate::image::functions::FunctionTable;
use crate::image::refusal::{Refusal, RefusalCode};
use blocks::{BlockIndex, Partition};
use jump_tables::{JumpTable, TableContext, find_tables};
use kept_relocations::{KeptRelocationSummary, check_kept_relocations};
use pins::{Pin, PinReason};
use pointers::{CodePointer, code_pointers};
use references::Finding;
use units::{FreeInterval, Unit, build_units};

/// All that is known about an image's code.
pub struct Analysis<'data> {
    /// Executable ranges.
    pub code: CodeSpace<'data>,
    /// `.dynamic`.
    pub dynamic: Vec<DynamicEntry>,
    /// Blocks and gaps.
    pub partition: Partition,
    /// What moves as one, in address order.
    pub units: Vec<Unit>,
    /// Where movable units may go.
    pub free: Vec<FreeInterval>,
    /// Proven jump tables, by base.
    pub tables: Vec<JumpTable>,
    /// Code addresses in data, by target.
    pub pointers: Vec<CodePointer>,
    /// How relocations that the linker kept compare with the code; none when it kept none.
    pub kept_relocations: Option<KeptRelocationSummary>,
    fields: Vec<Field>,
    field_ranges: Vec<u32>,
    refers_to_own_end: Vec<bool>,
}

impl<'data> Analysis<'data> {
    /// Analyses `file`.
    ///
    /// # Errors
    /// The first global obligation that fails, as a refusal; malformed tables.
    pub fn new(file: &ElfFile<'data>, functions: &FunctionTable<'data>) -> Result<Self> {
        let dynamic = dynamic_entries(file)?;
        obligations::check_image(file, &dynamic)?;
        let code = CodeSpace::collect(file)?;
        let relocations = loader_relocations(file, &dynamic)?;
        let pointers = code_pointers(file, &code, &relocations)?;
        let mut partition = Partition::new(&code, functions, &pointers);
        let boundaries = Boundaries::new(code.span());
        let mut decoded = decode_blocks(&code, &partition, &boundaries);
        let opaque = opaque_bytes(&partition, &decoded);
        for (block, decoded) in partition.blocks.iter_mut().zip(&decoded) {
            if decoded.has_inner_data {
                block.keep_data_alignment();
            }
        }
        obligations::check_coverage(&code, &partition, opaque)?;

        let mut findings = check_references(&code, &partition, &boundaries, &mut decoded);
        let mut kept = check_kept_relocations(file, &code, &partition);
        findings.append(&mut kept.findings);
        keep_targets_of_distrusted(&code, &partition, &mut decoded, &mut findings);
        for pointer in &pointers {
            references::check_pointer(&code, &partition, &boundaries, pointer, &mut findings);
        }
        let mut data_references = Vec::new();
        for gap in &partition.gaps {
            gap_references::check_gap(&code, &partition, gap, &mut findings, &mut data_references);
        }
        for section in &code.fixed {
            gap_references::check_fixed_code(
                &code,
                &partition,
                section.clone(),
                &mut findings,
                &mut data_references,
            );
        }
        check_exception_tables(file, functions, &partition, &mut findings)?;
        if code.is_fixed_address {
            absolute_addresses::check_absolute_addresses(file, &code, &partition, &decoded, &mut findings);
        }
        computed_addresses::check_computed_addresses(file, &code, &partition, &decoded, &mut findings);
        stub_arrays::check_stub_arrays(&code, &partition, &mut findings);

        collect_data_references(&mut decoded, &relocations, &mut data_references);
        let loader_places = sorted(relocations.iter().map(|relocation| relocation.place).collect());
        let related = related_blocks(&findings);
        let context = TableContext {
            file,
            code: &code,
            partition: &partition,
            boundaries: &boundaries,
            data_references: &data_references,
            loader_places: &loader_places,
            related: &related,
        };
        let tables = find_tables(&context, &decoded, &mut findings);
        relative_pointers::check_relative_pointers(
            file,
            &code,
            &partition,
            &tables,
            &data_references,
            &mut findings,
        );
        relative_words::check_relative_words(
            &partition,
            &kept.words,
            &tables,
            &data_references,
            &mut findings,
        );
        for address in entry_points(file, &dynamic) {
            references::check_data_target(&code, &partition, &boundaries, address, address, &mut findings);
        }
        let (units, free) = build_units(&code, &partition, &mut findings);
        let mut refers_to_own_end: Vec<bool> = decoded.iter().map(|block| block.refers_to_own_end).collect();
        for table in &tables {
            let end = partition.block(table.owner).end;
            refers_to_own_end[table.owner.0 as usize] |= table.targets(file).any(|target| target == end);
        }
        let (fields, field_ranges) = flatten_fields(decoded);
        Ok(Self {
            code,
            dynamic,
            partition,
            units,
            free,
            tables,
            pointers,
            kept_relocations: kept.summary,
            fields,
            field_ranges,
            refers_to_own_end,
        })
    }

    /// Whether code or a table of the unit refers to the byte behind it, so that nothing else may start there.
    pub fn refers_to_own_end(&self, unit: &Unit) -> bool {
        let last = unit.blocks.end as usize - 1;
        self.refers_to_own_end[last]
    }

    /// The address fields of a range of blocks that leave their block.
    pub fn fields(&self, blocks: Range<u32>) -> &[Field] {
        let first = self.field_ranges[blocks.start as usize] as usize;
        let last = self.field_ranges[blocks.end as usize] as usize;
        &self.fields[first..last]
    }
}

/// Code addresses that the headers hold: the entry point, DT_INIT and DT_FINI.
fn entry_points(file: &ElfFile<'_>, dynamic: &[DynamicEntry]) -> Vec<Address> {
    let functions = dynamic.iter().filter(|entry| matches!(entry.tag, DT_INIT | DT_FINI));
    functions.map(|entry| Address(entry.value)).chain([file.entry]).collect()
}

/// Address of the initialisation function.
pub const DT_INIT: i64 = 12;
/// Address of the termination function.
pub const DT_FINI: i64 = 13;

fn decode_blocks(code: &CodeSpace<'_>, partition: &Partition, boundaries: &Boundaries) -> Vec<DecodedBlock> {
    partition
        .blocks
        .par_iter()
        .with_min_len(64)
        .map(|block| decode_block(code, block.start..block.end, boundaries))
        .collect()
}

fn opaque_bytes(partition: &Partition, decoded: &[DecodedBlock]) -> u64 {
    let blocks = partition.blocks.iter().zip(decoded);
    blocks.filter(|(_, decoded)| decoded.invalid_at.is_some()).map(|(block, _)| block.size()).sum()
}

fn check_references(
    code: &CodeSpace<'_>,
    partition: &Partition,
    boundaries: &Boundaries,
    decoded: &mut [DecodedBlock],
) -> Vec<Finding> {
    decoded
        .par_iter_mut()
        .enumerate()
        .with_min_len(64)
        .flat_map_iter(|(index, decoded)| {
            let index = BlockIndex(index as u32);
            let mut findings = Vec::new();
            if let Some(evidence) = decoded.invalid_at {
                decoded.fields.clear();
                findings.push(Finding::Distrust(index, Pin { reason: PinReason::NotDecodable, evidence }));
            } else {
                references::check_fields(code, partition, boundaries, index, decoded, &mut findings);
            }
            findings
        })
        .collect()
}

/// A block that is not trusted is never written, so whatever it may refer to must stay as well.
fn keep_targets_of_distrusted(
    code: &CodeSpace<'_>,
    partition: &Partition,
    decoded: &mut [DecodedBlock],
    findings: &mut Vec<Finding>,
) {
    let distrusted: Vec<BlockIndex> = findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Distrust(block, _) => Some(*block),
            _ => None,
        })
        .collect();
    for index in distrusted {
        let block = partition.block(index);
        gap_references::check_opaque(code, partition, block.start, block.end, findings);
        let decoded = &mut decoded[index.0 as usize];
        decoded.fields.clear();
        decoded.has_register_jump = false;
    }
}

/// Landing pads are distances from the function's start unless the table names another base.
fn check_exception_tables(
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    partition: &Partition,
    findings: &mut Vec<Finding>,
) -> Result<()> {
    for entry in &functions.frame_entries {
        if let Some(block) = entry.personality.and_then(|routine| partition.block_containing(routine)) {
            // Named by a distance or an address inside the unwind entries, which are not rewritten for it.
            let pin = Pin { reason: PinReason::RelativePointer, evidence: entry.start_field_address };
            findings.push(Finding::Pin(block, pin));
        }
        let Some(table) = entry.exception_table else { continue };
        let base = landing_pad_base(file, table)?;
        for address in base.into_iter().flat_map(|base| [base, entry.start]) {
            if let Some(block) = partition.block_containing(address) {
                let pin = Pin { reason: PinReason::LandingPadBase, evidence: table };
                findings.push(Finding::Pin(block, pin));
            }
        }
    }
    Ok(())
}

/// The base that a language-specific data area names for its landing pads, if it does.
///
/// Source: the Itanium C++ ABI's exception tables, as gcc and LLVM write them.
fn landing_pad_base(file: &ElfFile<'_>, table: Address) -> Result<Option<Address>> {
    const OMITTED: u8 = 0xff;
    const FIELD_RELATIVE_FOUR_BYTES: u8 = 0x1b;
    let unknown = || {
        Refusal::new(
            RefusalCode::R8,
            "an exception table names a base for its landing pads in an unknown form",
            "rebuild without basic-block sections",
        )
        .at(table)
    };
    match file.bytes_at(table, 1) {
        Some([OMITTED]) => Ok(None),
        Some([FIELD_RELATIVE_FOUR_BYTES]) => {
            let field = table.plus(1);
            let word = file.bytes_at(field, 4).and_then(|bytes| bytes.try_into().ok()).ok_or_else(unknown)?;
            Ok(Some(field.plus(i64::from(i32::from_le_bytes(word)) as u64)))
        }
        _ => Err(unknown().into()),
    }
}

/// Moves all data addresses that code or pointers refer to into one sorted list.
fn collect_data_references(
    decoded: &mut [DecodedBlock],
    relocations: &[LoaderRelocation],
    data_references: &mut Vec<Address>,
) {
    for block in decoded.iter_mut() {
        data_references.append(&mut block.data_references);
        if !block.has_register_jump {
            block.table_candidates = Vec::new();
        }
    }
    for relocation in relocations {
        if let LoaderAction::Relative(target) = relocation.action {
            data_references.push(target);
        }
    }
    *data_references = sorted(std::mem::take(data_references));
}

fn sorted(mut addresses: Vec<Address>) -> Vec<Address> {
    addresses.sort_unstable();
    addresses.dedup();
    addresses.shrink_to_fit();
    addresses
}

fn related_blocks(findings: &[Finding]) -> Vec<(BlockIndex, BlockIndex)> {
    let mut related: Vec<_> = findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Related(first, second) => Some([(*first, *second), (*second, *first)]),
            _ => None,
        })
        .flatten()
        .collect();
    related.sort_unstable();
    related.dedup();
    related
}

fn flatten_fields(decoded: Vec<DecodedBlock>) -> (Vec<Field>, Vec<u32>) {
    let total = decoded.iter().map(|block| block.fields.len()).sum();
    let mut fields = Vec::with_capacity(total);
    let mut ranges = Vec::with_capacity(decoded.len() + 1);
    for block in decoded {
        ranges.push(fields.len() as u32);
        fields.extend(block.fields);
    }
    ranges.push(fields.len() as u32);
    (fields, ranges)
}
