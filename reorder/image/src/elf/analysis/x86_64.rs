//! The instructions of x86-64 code: fields, jump tables, and what must stay because of them.

use rayon::prelude::*;

use super::block_uses::BlockUses;
use super::blocks::{BlockIndex, BlockTraits, Partition};
use super::computed_addresses::{CodeView, OtherWords};
use super::fields::{ByBlock, CodeFields};
use super::jump_tables::{FoundTables, TableContext, find_tables};
use super::kept_relocations::check_kept_relocations;
use super::landing_pads::readable_landing_pads;
use super::references::{self, Finding};
use super::{
    CodeFacts, ImageFacts, absolute_addresses, absolute_fields, call_offsets, computed_addresses,
    gap_references, named_addresses, obligations, sorted, stored_distances,
};
use crate::boundaries::Boundaries;
use crate::decode::x86_64::{DecodedBlock, decode_block};
use crate::elf::code::CodeSpace;
use crate::elf::functions::ElfFunctions;
use crate::elf::relocation::{LoaderAction, LoaderRelocation};
use crate::elf::symbol::Symbol;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::error::Result;

/// Decodes all blocks, and follows what they refer to.
///
/// # Errors
/// Refuses (R5, R6) images of which too little is known.
pub(super) fn code_facts(image: &ImageFacts<'_, '_>, partition: Partition) -> Result<CodeFacts> {
    let ImageFacts { file, code, relocations, tables: kept_tables, .. } = *image;
    let boundaries = Boundaries::new(code.span());
    let mut decoded = decode_blocks(code, &partition, &boundaries);
    let opaque = opaque_bytes(&partition, &decoded);
    let code_in_gaps =
        obligations::check_coverage(code, &partition, opaque, image.coverage, &image.functions.found)?;
    let traits = decoded.iter().map(|decoded| BlockTraits {
        has_inner_data: decoded.has_inner_data,
        takes_own_address: decoded.takes_own_address,
    });
    let decoded_partition = partition.decoded(traits, code_in_gaps);
    let partition = &decoded_partition;

    let mut findings = check_references(code, partition, &boundaries, &mut decoded);
    let mut kept = check_kept_relocations(file, code, partition, kept_tables);
    findings.append(&mut kept.findings);
    let (is_distrusted, found) = keep_targets_of_distrusted(code, partition, &mut decoded, &findings);
    findings.extend(found);
    let (absolute, found) =
        absolute_fields::keep_targets_of_unwritten(partition, is_distrusted, kept.absolute);
    kept.absolute = absolute;
    findings.extend(found);
    let mut data_references = Vec::new();
    let gaps = partition.gaps.iter().map(|gap| gap_references::check_gap(code, partition, gap));
    let stubs =
        code.fixed.iter().map(|range| gap_references::check_fixed_code(code, partition, range.clone()));
    for found in gaps.chain(stubs) {
        findings.extend(found.findings);
        data_references.extend(found.data);
    }
    if code.is_fixed_address {
        let listed = sorted(kept.listed_sections(kept_tables).collect());
        let known = absolute_addresses::Known { fields: &kept.absolute, listed: &listed };
        let constants = absolute_addresses::operands(code, partition, &decoded);
        findings
            .extend(absolute_addresses::check_absolute_addresses(file, code, partition, &constants, known));
        data_references.extend(kept.data_references(code, kept_tables));
    }
    let view = CodeView { file, code, partition };
    let (found, far_references) = computed_addresses::check_wide_constants(view, &decoded)?;
    findings.extend(found);
    findings.extend(computed_addresses::check_computed_calls(view, &decoded)?);
    findings.extend(call_offsets::check_call_offsets(view, &decoded, image.pointers, relocations)?);

    collect_data_references(&decoded, relocations, &mut data_references);
    let loader_places = sorted(relocations.iter().map(|relocation| relocation.place).collect());
    let related = related_blocks(&findings);
    let uses = BlockUses::new(code, partition, &decoded, image.pointers, image.roots);
    let named_data = named_data(&data_references, relocations, image.functions);
    let pads = readable_landing_pads(file, image.functions);
    let context = TableContext {
        file,
        code,
        partition,
        boundaries: &boundaries,
        named_data: &named_data,
        landing_pads: &pads,
        uses: &uses,
        loader_places: &loader_places,
        related: &related,
    };
    let FoundTables { tables, loading, explained, findings: found } = find_tables(&context, &decoded);
    findings.extend(found);
    let others = OtherWords { tables: &tables, loader_places: &loader_places };
    findings.extend(computed_addresses::check_computed_jumps(view, &decoded, &explained, others));
    let loaded = named_addresses::LoadedAddresses::new(view, image.pointers, relocations);
    let distrusted = distrusted_blocks(&findings);
    findings.extend(stored_distances::check_stored_distances(
        view,
        (&decoded, &distrusted, image.coverage),
        &loaded,
        others,
    )?);
    if !loading.is_empty() {
        let pointers = image.pointers.iter().map(|pointer| pointer.target);
        let held = computed_addresses::held_addresses(view, &decoded, pointers);
        findings.extend(computed_addresses::check_jumps_from_loaded_addresses(
            view,
            (&decoded, &loading),
            &held,
            others,
        )?);
    }
    let mut refers_to_own_end: Vec<bool> = decoded.iter().map(|block| block.refers_to_own_end).collect();
    for table in &tables {
        let end = partition.block(table.owner).end;
        refers_to_own_end[table.owner.0 as usize] |= table.targets(file).any(|target| target == end);
    }
    let fields = CodeFields::X86_64(ByBlock::new(decoded.into_iter().map(|block| block.fields)));
    Ok(CodeFacts {
        partition: decoded_partition,
        boundaries,
        findings,
        fields,
        tables,
        data_references,
        far_references,
        kept,
        refers_to_own_end,
    })
}

fn decode_blocks(code: &CodeSpace<'_>, partition: &Partition, boundaries: &Boundaries) -> Vec<DecodedBlock> {
    partition
        .blocks
        .par_iter()
        .with_min_len(64)
        .map(|block| decode_block(code, block.start..block.end, block.first_function, boundaries))
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
    let returns: Vec<bool> = decoded.iter().map(|block| block.returns).collect();
    decoded
        .par_iter_mut()
        .enumerate()
        .with_min_len(64)
        .flat_map_iter(|(index, decoded)| {
            let index = BlockIndex(index as u32);
            if let Some(evidence) = decoded.invalid_at {
                decoded.fields.clear();
                vec![Finding::Distrust(index, Pin { reason: PinReason::NotDecodable, evidence })]
            } else {
                references::check_fields(code, partition, boundaries, index, decoded, &returns)
            }
        })
        .collect()
}

/// A block that is not trusted is never written, so everything that it may refer to must stay as well. Gives a test for
/// such blocks, and the findings.
fn keep_targets_of_distrusted(
    code: &CodeSpace<'_>,
    partition: &Partition,
    decoded: &mut [DecodedBlock],
    findings: &[Finding],
) -> (impl Fn(BlockIndex) -> bool + use<>, Vec<Finding>) {
    let distrusted = distrusted_blocks(findings);
    let mut kept = Vec::new();
    for &index in &distrusted {
        let block = partition.block(index);
        kept.extend(gap_references::check_opaque(code, partition, block.start, block.end));
        let decoded = &mut decoded[index.0 as usize];
        decoded.fields.clear();
        decoded.has_register_jump = false;
    }
    (move |block| distrusted.binary_search(&block).is_ok(), kept)
}

/// Blocks whose instructions may be wrong, ascending.
fn distrusted_blocks(findings: &[Finding]) -> Vec<BlockIndex> {
    let distrusted = findings.iter().filter_map(|finding| match finding {
        Finding::Distrust(block, _) => Some(*block),
        _ => None,
    });
    let mut distrusted: Vec<BlockIndex> = distrusted.collect();
    distrusted.sort_unstable();
    distrusted.dedup();
    distrusted
}

/// All data addresses that code or pointers refer to, in one sorted list.
fn collect_data_references(
    decoded: &[DecodedBlock],
    relocations: &[LoaderRelocation],
    data_references: &mut Vec<Address>,
) {
    data_references.extend(decoded.iter().flat_map(|block| &block.data_references));
    for relocation in relocations {
        if let LoaderAction::Relative(target) = relocation.action {
            data_references.push(target);
        }
    }
    *data_references = sorted(std::mem::take(data_references));
}

/// `data_references`, and what symbols name.
fn named_data(
    data_references: &[Address],
    relocations: &[LoaderRelocation],
    functions: &ElfFunctions<'_>,
) -> Vec<Address> {
    let symbolic = relocations.iter().filter_map(|relocation| match relocation.action {
        LoaderAction::Symbolic(target) => target,
        _ => None,
    });
    let exported = functions
        .dynamic_symbols
        .iter()
        .filter(|symbol| symbol.defining_section().is_some() && !symbol.is_thread_local());
    let variables = functions.symbols.iter().filter(Symbol::is_variable);
    let symbols = exported.chain(variables).map(|symbol| symbol.value);
    sorted(data_references.iter().copied().chain(symbolic).chain(symbols).collect())
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
