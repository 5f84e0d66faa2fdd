//! From headers to units: everything that must be known before a function may be moved.
//!
//! In: a parsed image and its functions. Out: [`Analysis`]. Guarantee: a unit without a pin is referred to only
//! through fields, tables and pointers that are listed here.

mod aarch64;
pub mod absolute_addresses;
pub mod absolute_fields;
pub(crate) mod block_uses;
pub mod blocks;
mod call_offsets;
pub(crate) mod computed_addresses;
pub mod dispatch;
mod dumps;
mod entry_prefix;
pub mod exception_tables;
pub mod exposure;
pub mod fields;
pub mod gap_references;
mod index_value;
pub mod jump_tables;
pub mod kept_relocations;
mod landing_pads;
mod named_addresses;
pub mod obligations;
pub mod pointers;
pub mod references;
pub mod relative_pointers;
pub(crate) mod relative_words;
mod segment_starts;
mod stored_distances;
pub(crate) mod stub_arrays;
pub(crate) mod table_bound;
pub(crate) mod table_extent;
mod undescribed;
pub mod units;
mod x86_64;

use std::ops::Deref;

use object::elf::{DT_FINI, DT_INIT};
use rayon::prelude::*;

use crate::boundaries::Boundaries;
use crate::elf::code::CodeSpace;
use crate::elf::dynamic::{DynamicEntry, dynamic_entries};
use crate::elf::file::ElfFile;
use crate::elf::functions::ElfFunctions;
use crate::elf::kept_relocations::KeptTables;
use crate::elf::relocation::{LoaderRelocation, loader_relocations};
use absolute_fields::{AbsoluteField, check_absolute_fields};
use blocks::Partition;
use exposure::Exposure;
use fields::CodeFields;
use jump_tables::JumpTable;
use kept_relocations::{KeptRelocationSummary, KeptRelocations, absolute_words};
use pointers::{CodePointer, code_pointers};
use references::Finding;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};
use units::{FreeInterval, Unit, build_units};

/// All that is known about an image's code: what only moving code needs, and the rest, which also rewriting data needs.
///
/// The first part is the largest; [`Analysis::into_kept`] releases it once the code is in its new place.
pub struct Analysis<'data> {
    /// What moves as one, in address order.
    pub units: Vec<Unit>,
    /// The fields of instructions that a move may change.
    pub fields: CodeFields,
    /// The rest.
    pub kept: KeptAnalysis<'data>,
}

/// What is known about an image's code besides units and fields.
pub struct KeptAnalysis<'data> {
    /// Executable ranges.
    pub code: CodeSpace<'data>,
    /// `.dynamic`.
    pub dynamic: Vec<DynamicEntry>,
    /// Blocks and gaps.
    pub partition: Partition,
    /// Where movable units may go.
    pub free: Vec<FreeInterval>,
    /// Proven jump tables, by base.
    pub tables: Vec<JumpTable>,
    /// Code addresses in data, by target.
    pub pointers: Vec<CodePointer>,
    /// At a fixed address: all other fields that hold the address of code, by place.
    pub absolute_fields: Vec<AbsoluteField>,
    /// How relocations that the linker kept compare with the code; none when it kept none.
    pub kept_relocations: Option<KeptRelocationSummary>,
    /// What may refer to blocks besides what is listed here.
    pub exposure: Exposure,
    refers_to_own_end: Vec<bool>,
}

/// How much of the code must be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// At least half, or functions are not moved.
    Half,
    /// Any part: functions are copied, and everything else stays as it is.
    Any,
}

/// What is known before any code is decoded.
struct ImageFacts<'run, 'data> {
    file: &'run ElfFile<'data>,
    functions: &'run ElfFunctions<'data>,
    code: &'run CodeSpace<'data>,
    relocations: &'run [LoaderRelocation],
    /// Relocations that the linker kept.
    tables: &'run KeptTables<'data>,
    pointers: &'run [CodePointer],
    /// Code addresses that the headers hold.
    roots: &'run [Address],
    coverage: Coverage,
}

/// What the instructions of one processor tell.
struct CodeFacts {
    /// Blocks and gaps, with what decoding shows of them.
    partition: Partition,
    boundaries: Boundaries,
    findings: Vec<Finding>,
    fields: CodeFields,
    /// Proven jump tables whose entries follow their targets, by base.
    tables: Vec<JumpTable>,
    /// Data addresses that code or the loader refers to, sorted, each once.
    data_references: Vec<Address>,
    /// Data addresses that code may compute from constants, sorted, each once. Most are meaningless, so none bounds a table.
    far_references: Vec<Address>,
    kept: KeptRelocations,
    /// For each block, whether its code or a table refers to the byte right after it.
    refers_to_own_end: Vec<bool>,
}

impl<'data> Analysis<'data> {
    /// Analyses `file`, whose functions are to be moved.
    ///
    /// # Errors
    /// The first global obligation that fails, as a refusal; malformed tables.
    pub fn new(file: &ElfFile<'data>, functions: &ElfFunctions<'data>) -> Result<Self> {
        Self::with_coverage(file, functions, Coverage::Half)
    }

    /// Analyses `file`; `coverage` is how much of its code must be known.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_coverage(
        file: &ElfFile<'data>,
        functions: &ElfFunctions<'data>,
        coverage: Coverage,
    ) -> Result<Self> {
        let dynamic = dynamic_entries(file)?;
        obligations::check_image(file, &dynamic)?;
        dumps::check_dumps(file)?;
        let code = CodeSpace::collect(file)?;
        let relocations = loader_relocations(file, &dynamic)?;
        let kept_tables = KeptTables::read(file);
        let loader_pointers = code_pointers(file, &code, &relocations)?;
        let pointers = with_words(file, &loader_pointers, &absolute_words(file, &code, &kept_tables));
        let partition = Partition::new(&code, functions, &pointers);
        let roots = entry_points(file, &dynamic);
        let (relocations, roots) = (relocations.as_slice(), roots.as_slice());
        let image = ImageFacts {
            file,
            functions,
            code: &code,
            relocations,
            tables: &kept_tables,
            pointers: &pointers,
            roots,
            coverage,
        };
        let facts = match file.processor {
            Processor::X86_64 => x86_64::code_facts(&image, partition)?,
            Processor::Aarch64 => aarch64::code_facts(&image, partition)?,
            Processor::Other => return Err(unknown_processor()),
        };
        let CodeFacts {
            partition,
            boundaries,
            mut findings,
            fields,
            tables,
            data_references,
            far_references,
            kept,
            refers_to_own_end,
        } = facts;
        findings.extend(check_absolute_fields(&code, &partition, &boundaries, &kept.absolute));
        let pointers = with_words(file, &loader_pointers, &kept.absolute);
        let checked = |pointer| references::check_pointer(&code, &partition, &boundaries, pointer);
        findings.extend(pointers.iter().flat_map(checked));
        let checked = |&root| references::check_data_target(&code, &partition, &boundaries, root, root);
        findings.extend(roots.iter().flat_map(checked));
        findings.extend(exception_tables::check_exception_tables(file, functions, &partition)?);
        findings.extend(computed_addresses::check_named_sections(file, &code, &partition));
        findings.extend(entry_prefix::check_prefixes(&code, &partition));
        findings.extend(stub_arrays::check_stub_arrays(&code, &partition));
        findings.extend(segment_starts::check_segment_starts(file, &code, &partition));
        let mut far = relative_pointers::literal_bases(file);
        far.extend(&far_references);
        let bases = relative_pointers::Bases { named: &data_references, far: &far };
        findings.extend(relative_pointers::check_relative_pointers(file, &code, &partition, &tables, bases));
        findings.extend(relative_words::check_relative_words(
            &partition,
            &kept.words,
            &tables,
            &data_references,
        ));
        let known = undescribed::Known {
            code: &code,
            functions,
            partition: &partition,
            dynamic: &dynamic,
            fields: &fields,
            pointers: &pointers,
            roots,
        };
        findings.extend(undescribed::check_undescribed_code(&known, &findings));
        let exposure = Exposure::new(&code, &partition, &findings);
        let (units, free) = build_units(&code, &partition, findings);
        let kept = KeptAnalysis {
            code,
            dynamic,
            partition,
            free,
            tables,
            pointers,
            absolute_fields: kept
                .absolute
                .into_iter()
                .filter(|field| field.pointer(file).is_none())
                .collect(),
            kept_relocations: kept.summary,
            exposure,
            refers_to_own_end,
        };
        Ok(Self { units, fields, kept })
    }

    /// Releases the units and the fields.
    #[must_use]
    pub fn into_kept(self) -> KeptAnalysis<'data> {
        self.kept
    }
}

impl<'data> Deref for Analysis<'data> {
    type Target = KeptAnalysis<'data>;

    fn deref(&self) -> &Self::Target {
        &self.kept
    }
}

impl KeptAnalysis<'_> {
    /// Whether code or a table of the unit refers to the byte right after it, so that nothing else may start there.
    pub fn refers_to_own_end(&self, unit: &Unit) -> bool {
        let last = unit.blocks.end as usize - 1;
        self.refers_to_own_end[last]
    }
}

/// The loader's pointers and those among `fields`, by target.
fn with_words(file: &ElfFile<'_>, loader: &[CodePointer], fields: &[AbsoluteField]) -> Vec<CodePointer> {
    let words = fields.iter().filter_map(|field| field.pointer(file));
    let mut pointers: Vec<CodePointer> = loader.iter().copied().chain(words).collect();
    pointers.par_sort_unstable_by_key(|pointer| (pointer.target, pointer.place, pointer.addend_field));
    pointers
}

/// Code addresses that the headers hold: the entry point, DT_INIT and DT_FINI.
fn entry_points(file: &ElfFile<'_>, dynamic: &[DynamicEntry]) -> Vec<Address> {
    let functions = dynamic.iter().filter(|entry| [DT_INIT.0, DT_FINI.0].contains(&entry.tag));
    functions.map(|entry| Address(entry.value)).chain([file.entry]).collect()
}

fn unknown_processor() -> Error {
    let cure = "give a program or shared object for x86-64 or AArch64";
    Refusal::new(RefusalCode::UnsupportedFile, "the code of this processor cannot be decoded", cure).into()
}

fn sorted(mut addresses: Vec<Address>) -> Vec<Address> {
    addresses.par_sort_unstable();
    addresses.dedup();
    addresses.shrink_to_fit();
    addresses
}
