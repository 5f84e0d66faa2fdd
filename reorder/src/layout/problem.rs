//! An image's functions and traces in the terms of the algorithms.

use std::cmp::Reverse;

use layout_algos::problem::{LayoutProblem, ProblemError, Trace};
use layout_algos::score::Span;

use super::{LayoutRequest, checked_count, to_id};
use crate::error::{Error, Result};
use crate::image::analysis::Analysis;
use crate::image::analysis::blocks::{ORDINARY_ALIGNMENT, alignment};
use crate::image::analysis::units::unit_containing;
use crate::image::elf::file::ElfFile;
use crate::image::functions::{Function, FunctionTable};
use crate::image::references::{FingerprintOptions, Fingerprints, References};
use crate::trace::ResolvedTrace;

/// Where functions can go.
#[derive(Clone, Copy)]
pub enum Room<'analysis> {
    /// Anywhere from the first function on: a linker places them.
    Linker,
    /// Where relocation in place can put them.
    InPlace(&'analysis Analysis<'analysis>),
}

impl Room<'_> {
    /// Whether `function` keeps its place whatever the order is.
    fn is_pinned(self, function: &Function) -> bool {
        match self {
            Self::Linker => false,
            Self::InPlace(analysis) => unit_containing(&analysis.units, function.start)
                .is_none_or(|unit| analysis.units[unit.0 as usize].pin.is_some()),
        }
    }

    /// The first address for functions, and what is in the way behind it.
    fn text(self, functions: &FunctionTable<'_>) -> (u64, Vec<Span>) {
        match self {
            Self::Linker => (functions.iter().next().map_or(0, |(_, function)| function.start.0), Vec::new()),
            Self::InPlace(analysis) => {
                // The largest interval of the largest arena is filled first (see `relocate::busy_pages`).
                let largest = analysis.free.iter().max_by_key(|interval| {
                    (interval.end.0.saturating_sub(interval.start.0), Reverse(interval.start))
                });
                let Some(largest) = largest else { return (0, Vec::new()) };
                let mut free: Vec<Span> = analysis
                    .free
                    .iter()
                    .filter(|interval| interval.arena == largest.arena)
                    .map(|interval| Span { start: interval.start.0, end: interval.end.0 })
                    .filter(|span| span.start < span.end)
                    .collect();
                free.sort_unstable();
                let origin = largest.start.0;
                let between = |pair: &[Span]| Span { start: pair[0].end, end: pair[1].start };
                let is_ahead = |span: &Span| span.start < span.end && span.start >= origin;
                (origin, free.windows(2).map(between).filter(is_ahead).collect())
            }
        }
    }
}

/// The problem that `request` poses; without `file`, references and contents are not known. Pinned functions are in no trace: their pages are touched wherever the others are.
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
    let aligned = |function: &Function| alignment(function.start, ORDINARY_ALIGNMENT) as u32;
    let alignments = functions.iter().map(|(_, function)| aligned(function)).collect();
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
    match request.compress {
        true => {
            let fingerprints = Fingerprints::extract(file, functions, FingerprintOptions::default())?;
            problem.with_fingerprints(fingerprints.windows).map_err(unusable)
        }
        false => Ok(problem),
    }
}

fn unusable(error: ProblemError) -> Error {
    Error::usage(error.to_string())
}
