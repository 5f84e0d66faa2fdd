//! An image's functions and traces in the terms of the algorithms.

use std::cmp::Reverse;

use layout_algos::ids::FunctionId;
use layout_algos::problem::{LayoutProblem, ProblemError, Trace};
use layout_algos::score::Span;

use super::{LayoutRequest, Piece, PieceTrace, checked_count, to_id};
use reorder_base::error::{Error, Result};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::blocks::{ORDINARY_ALIGNMENT, alignment};
use reorder_image::elf::analysis::units::unit_containing;
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::{Function, FunctionTable};
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::references::{FingerprintOptions, Fingerprints, References};
use reorder_trace::ResolvedTrace;

/// Where functions can be placed.
#[derive(Clone, Copy)]
pub enum Room<'analysis> {
    /// Anywhere from the first function on: a linker places them.
    Linker,
    /// Where relocation in place can put them.
    InPlace(&'analysis Analysis<'analysis>),
    /// The same in a Mach-O image, whose functions have no padding between them.
    InMachO(&'analysis MachOAnalysis),
}

impl Room<'_> {
    /// Whether `function` is pinned: it keeps its address in every order.
    fn is_pinned(self, function: &Function) -> bool {
        match self {
            Self::Linker => false,
            Self::InPlace(analysis) => unit_containing(&analysis.units, function.start)
                .is_none_or(|unit| analysis.units[unit.0 as usize].pin.is_some()),
            Self::InMachO(analysis) => analysis.unit_at(function.start).is_none_or(|unit| unit.pin.is_some()),
        }
    }

    /// The first address for functions, and the obstacles after it.
    fn text(self, functions: &FunctionTable<'_>) -> (u64, Vec<Span>) {
        match self {
            Self::Linker => (functions.iter().next().map_or(0, |(_, function)| function.start.0), Vec::new()),
            Self::InPlace(analysis) => {
                // The largest interval of the largest arena is filled first (see `relocate::busy_pages`).
                let largest = analysis.free.iter().max_by_key(|interval| {
                    (interval.end.0.saturating_sub(interval.start.0), Reverse(interval.start))
                });
                let Some(largest) = largest else { return (0, Vec::new()) };
                let free = analysis
                    .free
                    .iter()
                    .filter(|interval| interval.arena == largest.arena)
                    .map(|interval| Span { start: interval.start.0, end: interval.end.0 });
                around(free.collect(), largest.start.0)
            }
            Self::InMachO(analysis) => {
                let free = analysis.free();
                let largest =
                    free.iter().max_by_key(|gap| (gap.end.distance_from(gap.start), Reverse(gap.start)));
                let origin = largest.map_or(0, |gap| gap.start.0);
                around(free.iter().map(|gap| Span { start: gap.start.0, end: gap.end.0 }).collect(), origin)
            }
        }
    }

    /// The alignment that a function keeps.
    fn alignment(self, function: &Function) -> u32 {
        match self {
            Self::InMachO(analysis) => analysis.alignment_of(function.start) as u32,
            Self::Linker | Self::InPlace(_) => alignment(function.start, ORDINARY_ALIGNMENT) as u32,
        }
    }
}

/// The first address, and the obstacles between the free spans after it.
fn around(mut free: Vec<Span>, origin: u64) -> (u64, Vec<Span>) {
    free.retain(|span| span.start < span.end);
    free.sort_unstable();
    let between = |pair: &[Span]| Span { start: pair[0].end, end: pair[1].start };
    let is_ahead = |span: &Span| span.start < span.end && span.start >= origin;
    (origin, free.windows(2).map(between).filter(is_ahead).collect())
}

/// The problem that `request` poses; without `file`, references and contents are not known. Pinned functions are in no
/// trace: their pages are touched wherever the others are.
///
/// # Errors
/// Traces that name functions outside the table or one function twice, which resolving does not produce.
pub(super) fn problem_of(
    file: Option<&ElfFile<'_>>,
    functions: &FunctionTable<'_>,
    traces: &[ResolvedTrace],
    room: Room<'_>,
    request: &LayoutRequest,
) -> Result<LayoutProblem> {
    checked_count(functions.len())?;
    let is_pinned: Vec<bool> = functions.iter().map(|(_, function)| room.is_pinned(function)).collect();
    let traces: Vec<Trace> = traces
        .iter()
        // A weight of zero says that the trace does not count.
        .filter(|trace| trace.weight > 0)
        .map(|trace| Trace {
            weight: trace.weight,
            functions: trace
                .functions
                .iter()
                .filter(|index| !is_pinned.get(index.0 as usize).copied().unwrap_or(false))
                .map(|&index| to_id(index))
                .collect(),
        })
        .collect();
    let sizes = functions.iter().map(|(_, function)| function.size()).collect();
    let alignments = functions.iter().map(|(_, function)| room.alignment(function)).collect();
    let (origin, obstacles) = room.text(functions);
    let problem = LayoutProblem::new(sizes, &traces)
        .and_then(|problem| problem.with_alignments(alignments))
        .and_then(|problem| problem.with_text(origin, obstacles))
        .and_then(|problem| problem.with_objective(request.objective()))
        .map_err(unusable)?;
    let Some(file) = file else { return Ok(problem) };
    let problem = match request.uses_references() {
        true => problem.with_references(References::extract(file, functions)?.graph).map_err(unusable)?,
        false => problem,
    };
    match request.compress.is_some() {
        true => {
            let fingerprints = Fingerprints::extract(file, functions, FingerprintOptions::default())?;
            problem.with_fingerprints(fingerprints.windows).map_err(unusable)
        }
        false => Ok(problem),
    }
}

/// The problem of ordering `pieces` that follow each other, with padding as far as their alignment asks.
///
/// # Errors
/// Traces that name pieces outside of `pieces` or one piece twice.
pub(super) fn problem_of_pieces(
    pieces: &[Piece],
    traces: &[PieceTrace],
    request: &LayoutRequest,
) -> Result<LayoutProblem> {
    checked_count(pieces.len())?;
    let sizes = pieces.iter().map(|piece| piece.size).collect();
    let alignments = pieces.iter().map(|piece| piece.alignment).collect();
    let traces: Vec<Trace> = traces
        .iter()
        .filter(|trace| trace.weight > 0)
        .map(|trace| Trace {
            weight: trace.weight,
            functions: trace.pieces.iter().map(|&piece| FunctionId(piece)).collect(),
        })
        .collect();
    LayoutProblem::new(sizes, &traces)
        .and_then(|problem| problem.with_alignments(alignments))
        .and_then(|problem| problem.with_objective(request.objective()))
        .map_err(unusable)
}

fn unusable(error: ProblemError) -> Error {
    Error::usage(error.to_string())
}
