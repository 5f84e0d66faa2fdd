//! Checks a prediction: the text pages that a run touches according to a trace, and those that it really touches.
//!
//! In: an image, its functions, a trace, and a run of the same program. Out: [`AgreementReport`], in which every page that
//! only one side has is explained. The real pages come from the page table of a process whose text is mapped page by
//! page (see [`super::tracee`]), and are compared with the page cache and with the kernel's own samples of faults
//! where these can be had. Predicted are the pages that the simulation takes for touched.

mod causes;
mod report;
mod split_parts;

use std::collections::{BTreeMap, BTreeSet};

pub use causes::Cause;
pub use report::{AgreementReport, ExplainedPage, SecondWitness};

use super::page_cache::ProgramFile;
use super::run::{self, Reach, Watch};
use super::staging::Programs;
use super::{MeasureRequest, StartKind};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_system::PAGE_BYTES;
use reorder_system::interruption::Interruption;
use reorder_trace::ResolvedTrace;

/// Text pages of a run, by the places in the file where they begin. If a fault loads one page only, all three are
/// the touched pages.
#[derive(Clone, Debug)]
pub struct RealPages {
    /// In the page table at the end.
    pub mapped: BTreeSet<u64>,
    /// In the page cache at the same moment; absent when that was not empty at the beginning.
    pub cached: Option<BTreeSet<u64>>,
    /// Of the kernel's samples of page faults; absent where they are not allowed.
    pub faulted: Option<BTreeSet<u64>>,
    /// How the run ended.
    pub status: String,
}

/// Runs the old program of `request`, cold if that is requested and possible, with faults that `reach` as far as given.
///
/// # Errors
/// As [`super::measure`], and when pages cannot be watched.
pub fn real_pages(request: &MeasureRequest, reach: Reach) -> Result<RealPages> {
    let _interruption = Interruption::note();
    let ends = |file: &ProgramFile| Ok(run::run(&request.launch(file, Watch::Start))?.status);
    let warm = request.start == StartKind::Warm;
    let programs = Programs::prepare(vec![request.old.clone()], warm, &ends)?;
    let program = programs.last();
    if programs.cold() {
        program.evict()?;
    }
    let outcome = run::run(&request.launch(program, Watch::Pages(reach)))?;
    super::agree(programs.status(), &outcome, &request.old, false)?;
    let watched = outcome.watched.map_err(|unknown| {
        let (cause, next) = unknown.told();
        Error::usage(format!("the text pages of this program cannot be watched: {cause}"))
            .in_file(&request.old)
            .with_hint(next)
    })?;
    Ok(RealPages {
        mapped: watched.mapped,
        cached: outcome.cached_text.filter(|_| watched.began_cold),
        faulted: watched.faulted,
        status: outcome.status,
    })
}

/// What a trace predicts.
#[derive(Clone, Copy, Debug)]
pub struct Prediction<'run> {
    /// The trace.
    pub trace: &'run ResolvedTrace,
    /// The functions of the image that it belongs to.
    pub functions: &'run FunctionTable<'run>,
    /// The pages of the program that runs, by first address, each with those functions of the trace whose code is on it; without
    /// functions, code outside of them is.
    pub pages: &'run BTreeMap<Address, Vec<FunctionIndex>>,
    /// Functions count by executed blocks, or are copied in the program that runs: where they begin says nothing.
    pub is_in_parts: bool,
}

/// Compares the predicted pages with the `real` ones of a run by `request` of `file`, whose faults loaded one page. `functions`
/// are those of `file`.
#[must_use]
pub fn compare(
    request: &MeasureRequest,
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    prediction: &Prediction<'_>,
    real: &RealPages,
) -> AgreementReport {
    let Prediction { trace, pages: predicted, .. } = *prediction;
    let touched = addresses(file, &real.mapped);
    let witness = |pages: &Option<BTreeSet<u64>>| {
        pages.as_ref().map(|pages| SecondWitness::of(&touched, &addresses(file, pages)))
    };
    let only_predicted = predicted.iter().filter(|(page, _)| !touched.contains(page));
    let only_touched = touched.iter().filter(|page| !predicted.contains_key(page));
    let predicted_only: Vec<ExplainedPage> =
        only_predicted.map(|(&page, running)| causes::not_touched(file, prediction, page, running)).collect();
    let running: Vec<FunctionIndex> = match prediction.is_in_parts {
        // Its blocks are known, also those that are entered in the middle.
        true => Vec::new(),
        false => trace.functions.clone(),
    };
    let split_parts = split_parts::entered_in_the_middle(file, functions, &running);
    let touched_only: Vec<ExplainedPage> =
        only_touched.map(|&page| causes::not_predicted(file, functions, page, &split_parts)).collect();
    let on_one_side = predicted_only.iter().chain(&touched_only);
    let difference = on_one_side.filter(|page| !page.cause.is_untraced_code()).count();
    AgreementReport {
        program: request.old.clone(),
        arguments: request.arguments.iter().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        trace: trace.label.clone(),
        status: real.status.clone(),
        functions: trace.functions.len() as u64,
        predicted_pages: predicted.len() as u64,
        touched_pages: touched.len() as u64,
        pages_in_both: (predicted.len() - predicted_only.len()) as u64,
        difference_percent: difference as f64 / touched.len().max(1) as f64 * 100.0,
        page_cache: witness(&real.cached),
        fault_samples: witness(&real.faulted),
        predicted_only,
        touched_only,
    }
}

/// First addresses of pages that lie at `places` of the file, as the image states them.
fn addresses(file: &ElfFile<'_>, places: &BTreeSet<u64>) -> BTreeSet<Address> {
    let text = file.segments.iter().filter(|segment| segment.is_load() && segment.is_executable());
    let in_segment = |place: u64| {
        text.clone()
            .find(|text| {
                let first = text.offset.0 / PAGE_BYTES * PAGE_BYTES;
                place >= first && place < text.offset.0.saturating_add(text.file_size)
            })
            .map(|text| Address(place).plus(text.address.0.wrapping_sub(text.offset.0)))
    };
    places.iter().filter_map(|&place| in_segment(place)).collect()
}
