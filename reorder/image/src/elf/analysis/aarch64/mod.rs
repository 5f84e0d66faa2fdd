//! The instructions of AArch64 code: fields, and what must stay because of them.
//!
//! Every block is one atom of [`crate::aarch64`]; what decoding it gives becomes findings. Jump tables of compilers
//! count from a label of their function, so they need no change when it moves.

mod call_offsets;
mod findings;
mod fixed;
mod handed_sums;
pub(super) mod prefixes;
mod sums;

use std::collections::BTreeSet;
use std::ops::Range;

use crate::aarch64::{CodeContext, decode_atom, keep, value};
use crate::boundaries::Boundaries;
use crate::code_reference::PackedReference;
use crate::decode::aarch64::WORD;
use crate::decoded_atom::{DecodedAtom, check_budget, check_sums};
use crate::elf::analysis::blocks::{Block, BlockIndex, Partition};
use crate::elf::analysis::computed_addresses::CodeView;
use crate::elf::analysis::fields::CodeFields;
use crate::elf::analysis::kept_relocations::check_kept_relocations;
use crate::elf::analysis::landing_pads::landing_pads;
use crate::elf::analysis::pointers::PointersByPlace;
use crate::elf::analysis::{CodeFacts, ImageFacts, absolute_addresses, obligations, sorted};
use crate::elf::relocation::{LoaderAction, LoaderRelocation};
use crate::entry_rounds::{AtomDecoder, decode_atoms, pack};
use crate::pins::{Pin, PinReason};
use findings::AtomFindings;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::refusal::RefusalCode;

/// Decodes all blocks, and follows what they refer to.
///
/// # Errors
/// Refuses (R5, R6, R8) images of which too little is known; reports malformed exception tables.
pub(super) fn code_facts(image: &ImageFacts<'_, '_>, partition: Partition) -> Result<CodeFacts> {
    let ImageFacts { file, functions, code, relocations, tables, pointers, roots, coverage } = *image;
    // Instructions are words: a block that is not understood hides no references that cannot be listed.
    const NO_OPAQUE_BLOCKS: u64 = 0;
    let code_in_gaps =
        obligations::check_coverage(code, &partition, NO_OPAQUE_BLOCKS, coverage, &functions.found)?;
    let decoded_partition = partition.decoded([], code_in_gaps);
    let partition = &decoded_partition;
    let atoms: Vec<Range<Address>> =
        partition.blocks.iter().map(|block| block.first_function..block.end).collect();
    let starts = starts_of(partition);
    let text =
        atoms.first().map_or(Address(0), |atom| atom.start)..atoms.last().map_or(Address(0), |atom| atom.end);
    let (pads, mut findings) = landing_pads(file, functions, partition)?;
    let inner_starts = partition.blocks.iter().flat_map(Block::function_starts);
    let known: BTreeSet<Address> = pointers
        .iter()
        .map(|pointer| pointer.target)
        .chain(roots.iter().copied())
        .chain(inner_starts)
        .collect();
    let only_pads: Vec<Address> = pads.iter().copied().filter(|pad| !known.contains(pad)).collect();
    let mut context = CodeContext::new(file, text.clone(), &starts, &atoms, &only_pads, value::NOT_RETURNED);
    context.pointers = PointersByPlace::new(pointers).with_symbols(code, relocations);
    context.data_pointers = PointersByPlace::of_data(code, relocations);
    let base = file.segments.iter().filter(|segment| segment.is_load()).map(|segment| segment.address).min();
    let decoder = Decoder { context: &context, base: base.unwrap_or(Address(0)), text };
    let mut entries = known;
    entries.extend(pads);
    if code.is_fixed_address {
        entries.extend(
            absolute_addresses::possible_targets(file, code)
                .into_iter()
                .filter(|target| target.0 % WORD == 0),
        );
    }
    let (entered, found) = fixed::check_fixed_code(&context, code, partition, coverage);
    entries.extend(entered);
    findings.extend(found);
    let (decoded, mut references) = decode_atoms(&atoms, decoder.base, entries, &decoder);
    check_sums(&decoded, |index| atoms[index].start, RefusalCode::PrivateRuntimeTables)?;
    let handed = handed_sums::handed_sums(code, partition, &references);
    findings.extend(sums::check_code_sums(file, partition, &decoded, handed.into_iter())?);

    let mut refers_to_own_end = vec![false; atoms.len()];
    for (index, atom) in decoded.iter().enumerate() {
        let block = BlockIndex(index as u32);
        let mut found = AtomFindings::new(code, partition, block);
        found.add(atom, references.of_atom(index, atoms[index].start));
        findings.append(&mut found.findings);
        refers_to_own_end[index] = found.refers_to_own_end;
        if found.is_distrusted {
            let evidence = atoms[index].start;
            let pin = Pin { reason: PinReason::OpaqueReference, evidence };
            let kept = keep(&context, atoms[index].clone(), pin);
            let targets: Vec<Address> = kept.possible_targets.into_iter().chain(kept.summed).collect();
            findings.extend(fixed::keep_targets(partition, &targets, pin));
            references.replace(index, Box::default());
            continue;
        }
        if found.refers_to_own_end {
            let end = atoms[index].end;
            references.retain(index, atoms[index].start, |reference| reference.target != end);
        }
    }
    check_budget(&context.sums, context.text.start, RefusalCode::PrivateRuntimeTables)?;
    let mut kept = check_kept_relocations(file, code, partition, tables);
    findings.append(&mut kept.findings);
    if code.is_fixed_address {
        let listed = sorted(kept.listed_sections(tables).collect());
        let known = absolute_addresses::Known { fields: &kept.absolute, listed: &listed };
        let constants = absolute_addresses::literals(code, partition);
        findings
            .extend(absolute_addresses::check_absolute_addresses(file, code, partition, &constants, known));
    }
    let view = CodeView { file, code, partition };
    findings.extend(call_offsets::check_call_offsets(view, &references, pointers, relocations)?);
    let boundaries = Boundaries::new(code.span());
    for block in &partition.blocks {
        (0..block.size() / WORD).for_each(|word| boundaries.mark(code.offset(block.start.plus(word * WORD))));
    }
    let data_references = data_references(context.known, relocations);
    Ok(CodeFacts {
        partition: decoded_partition,
        boundaries,
        findings,
        fields: CodeFields::Aarch64(references),
        tables: Vec::new(),
        data_references,
        far_references: Vec::new(),
        kept,
        refers_to_own_end,
    })
}

/// Starts of blocks and of the functions in them.
fn starts_of(partition: &Partition) -> Vec<Address> {
    let blocks = partition.blocks.iter();
    sorted(blocks.flat_map(|block| block.function_starts().chain([block.start])).collect())
}

fn data_references(mut known: Vec<Address>, relocations: &[LoaderRelocation]) -> Vec<Address> {
    known.extend(relocations.iter().filter_map(|relocation| match relocation.action {
        LoaderAction::Relative(target) => Some(target),
        _ => None,
    }));
    sorted(known)
}

struct Decoder<'run> {
    context: &'run CodeContext<'run>,
    base: Address,
    text: Range<Address>,
}

impl AtomDecoder for Decoder<'_> {
    fn decode(&self, range: Range<Address>, entries: &[Address]) -> (DecodedAtom, Box<[PackedReference]>) {
        let atom = decode_atom(self.context, range.clone(), entries);
        pack(atom, range.start, self.base, &self.text)
    }

    fn keep(&self, range: Range<Address>) -> DecodedAtom {
        let pin = Pin { reason: PinReason::InsideAddressed, evidence: range.start };
        keep(self.context, range, pin)
    }
}
