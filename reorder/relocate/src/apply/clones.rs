//! Copies of code, added to an image whose functions are placed: functions that had to stay, or the parts that run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde::Serialize;

use super::Applied;
use super::elf::prove;
use crate::RelocateOptions;
use crate::elf::copies::{
    AssumedPointers, Candidate, Candidates, Copied, KeptRelocations, Obstacle, Wanted, copy,
};
use crate::warning::Warning;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_image::elf::analysis::{Analysis, Coverage};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// What was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CloneSummary {
    /// Functions that have a copy, whole or in part.
    pub functions: usize,
    /// Runs of instructions that were copied as one.
    pub fragments: usize,
    /// Bytes of all copies.
    pub bytes: u64,
    /// Functions that could have a copy, which would save no page.
    #[serde(skip_serializing_if = "is_zero")]
    pub functions_saving_no_page: usize,
    /// Numbers that were taken for pointers, since nothing lists pointers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumed_pointers: Option<AssumedPointers>,
    /// Functions that were wanted and cannot be copied.
    pub skipped: Vec<SkippedFunction>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde gives a reference
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A function without a copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedFunction {
    /// First name, or its address.
    pub name: String,
    /// Where it is.
    pub address: Address,
    /// The obstacle.
    pub obstacle: Obstacle,
    /// The place that shows it.
    pub evidence: Address,
}

/// How much of an image can be copied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CopyableFunctions {
    /// Functions that can be copied.
    pub functions: usize,
    /// Those that cannot, by the obstacle.
    pub obstacles: BTreeMap<Obstacle, usize>,
}

/// What of all functions could be copied.
///
/// # Errors
/// Refusals (R8), malformed tables.
pub fn copyable(
    file: &ElfFile<'_>,
    functions: &ElfFunctions<'_>,
    analysis: &Analysis<'_>,
) -> Result<CopyableFunctions> {
    let all: Vec<FunctionIndex> = functions.table.iter().map(|(index, _)| index).collect();
    let options = RelocateOptions { relocations: KeptRelocations::LeaveOut, ..RelocateOptions::default() };
    let wanted = (Wanted::Whole, options);
    let candidates = Candidates::find(file, functions, analysis, &all, wanted)?;
    let mut obstacles = BTreeMap::new();
    for obstacle in candidates.obstacles() {
        *obstacles.entry(obstacle).or_default() += 1;
    }
    Ok(CopyableFunctions { functions: candidates.function_count(), obstacles })
}

/// Copies those of `wanted`, in that order, that had to stay, then proves the result. `has_moved`: the image went through
/// [`super::apply`], so functions that are not pinned are in place.
///
/// # Errors
/// Refusals (R8, R12, R13, R16), malformed tables.
pub fn with_clones(
    applied: &Applied,
    wanted: &[Address],
    has_moved: bool,
    options: RelocateOptions,
) -> Result<Applied> {
    let stayed: BTreeSet<Address> = applied.summary.pinned.iter().map(|function| function.address).collect();
    let is_wanted = |address: &&Address| !has_moved || stayed.contains(address);
    let wanted: Vec<Address> = wanted.iter().filter(is_wanted).copied().collect();
    let file = ElfFile::parse(&applied.bytes)?;
    let image = Image::analyse(&file, &[])?;
    let starting = |address: &Address| image.functions.table.starting_at(*address);
    let wanted: Vec<FunctionIndex> = wanted.iter().filter_map(starting).collect();
    let in_order = |candidates: &[Candidate]| Ok((0..candidates.len()).collect());
    let copied = image.copied(&wanted, Wanted::Whole, options, in_order)?;
    image.proven(copied, applied)
}

/// Copies parts of functions in the order that `lay_out` gives to the candidates, by number, then proves the result. Copied
/// are the instructions that begin in one of `ran`, which ascend and do not overlap. `found` are functions to take into account beyond those that
/// the image describes. `narrowed` is given the bytes of this first image, before
/// it is proven; if it returns ranges, those are copied in place of `ran`.
///
/// # Errors
/// As [`with_clones`], and those of `lay_out` and `narrowed`.
pub fn with_fragments(
    applied: &Applied,
    (ran, found): (&[Range<Address>], &[Range<Address>]),
    options: RelocateOptions,
    lay_out: impl Fn(&[Candidate]) -> Result<Vec<usize>>,
    narrowed: impl FnOnce(&[u8]) -> Result<Option<Vec<Range<Address>>>>,
) -> Result<Applied> {
    let file = ElfFile::parse(&applied.bytes)?;
    let image = Image::analyse(&file, found)?;
    let all = image.copied(&image.running(ran), Wanted::Ran(ran), options, &lay_out)?;
    let Some(ran) = narrowed(&all.bytes)? else {
        return image.proven(all, applied);
    };
    let some = image.copied(&image.running(&ran), Wanted::Ran(&ran), options, &lay_out)?;
    let saving_no_page = all.functions.saturating_sub(some.functions);
    // What cannot be copied has no gain either, so the second pass did not ask for it.
    let mut proven = image.proven(Copied { skipped: all.skipped, ..some }, applied)?;
    if let Some(clones) = &mut proven.summary.clones {
        clones.functions_saving_no_page = saving_no_page;
    }
    Ok(proven)
}

/// Copies about half of all basic blocks, chosen with `seed`, as [`with_fragments`]: to find what copies could break.
///
/// # Errors
/// As [`with_fragments`].
pub fn with_random_fragments(
    applied: &Applied,
    seed: u64,
    options: RelocateOptions,
    lay_out: impl Fn(&[Candidate]) -> Result<Vec<usize>>,
) -> Result<Applied> {
    let file = ElfFile::parse(&applied.bytes)?;
    let image = Image::analyse(&file, &[])?;
    let all: Vec<FunctionIndex> = image.functions.table.iter().map(|(index, _)| index).collect();
    let copied = image.copied(&all, Wanted::AtRandom(seed), options, lay_out)?;
    image.proven(copied, applied)
}

/// An image that gets copies.
struct Image<'file> {
    file: &'file ElfFile<'file>,
    functions: ElfFunctions<'file>,
    analysis: Analysis<'file>,
}

impl<'file> Image<'file> {
    /// `found` are functions that the image does not describe; they do not move.
    fn analyse(file: &'file ElfFile<'file>, found: &[Range<Address>]) -> Result<Self> {
        let functions = ElfFunctions::collect_with(file, found)?;
        let analysis = Analysis::with_coverage(file, &functions, Coverage::Any)?;
        Ok(Self { file, functions, analysis })
    }

    /// Functions some of whose code is in `ran`.
    fn running(&self, ran: &[Range<Address>]) -> Vec<FunctionIndex> {
        let has_run = |start: Address, end: Address| {
            let first = ran.partition_point(|range| range.end <= start);
            ran.get(first).is_some_and(|range| range.start < end)
        };
        let functions = self.functions.table.iter();
        functions
            .filter(|(_, function)| has_run(function.start, function.end))
            .map(|(index, _)| index)
            .collect()
    }

    fn copied(
        &self,
        wanted: &[FunctionIndex],
        parts: Wanted<'_>,
        options: RelocateOptions,
        lay_out: impl Fn(&[Candidate]) -> Result<Vec<usize>>,
    ) -> Result<Copied> {
        let _phase = tracing::info_span!("copy").entered();
        let Self { file, functions, analysis } = self;
        let candidates = Candidates::find(file, functions, analysis, wanted, (parts, options))?
            .with_tables(file, functions, analysis)?;
        let order = lay_out(&candidates.candidates(file, analysis)?)?;
        copy(file, functions, analysis, candidates, options.debug, order)
    }

    /// The result, proven, of copies that were added to `applied`.
    fn proven(&self, copied: Copied, applied: &Applied) -> Result<Applied> {
        let Applied { map, summary, .. } = applied;
        let (map, mut summary) = (map.clone(), summary.clone());
        summary.warnings.extend(copied.lost.map(Warning::ProgramHeaderTaken));
        summary.warnings.extend(copied.awaits_application.then_some(Warning::ApplicationMustComeFirst));
        let assumed = Some(copied.assumed).filter(|assumed| assumed.functions > 0);
        summary.warnings.extend(assumed.map(Warning::PointersAssumed));
        let left_out = copied.left_out.iter().cloned();
        summary.warnings.extend(left_out.map(|section| Warning::KeptRelocationsLeftOut { section }));
        summary.clones = Some(summary_of(&self.functions.table, &copied));
        if !copied.copies.is_empty() {
            let _phase = tracing::info_span!("verify").entered();
            prove(self.file.bytes, &copied.bytes)?;
        }
        Ok(Applied { bytes: copied.bytes, map, summary })
    }
}

fn summary_of(functions: &FunctionTable<'_>, copied: &Copied) -> CloneSummary {
    let name = |address: Address| match functions.starting_at(address) {
        Some(index) => functions.display_name(index),
        None => address.to_string(),
    };
    let skipped = copied.skipped.iter().map(|&(address, obstacle, evidence)| SkippedFunction {
        name: name(address),
        address,
        obstacle,
        evidence,
    });
    CloneSummary {
        functions: copied.functions,
        fragments: copied.copies.len(),
        bytes: if copied.copies.is_empty() { 0 } else { copied.copied_bytes },
        functions_saving_no_page: 0,
        assumed_pointers: (copied.assumed != AssumedPointers::default()).then_some(copied.assumed),
        skipped: skipped.collect(),
    }
}
