//! One page of HTML that shows which pages startup touches: pages of the text before and after, fault curves, functions; for
//! one image, or for those of a set one at a time.
//!
//! In: an image, its functions, its traces by scenario, where the functions are in a second image or another build. Out: [`Summary`],
//! the figures for programs and people, and [`Document`], the page's bytes. The page needs no network and no other
//! file; it is the same for the same input.
//!
//! Names come from untrusted files. They reach the page only as text inside data, never as markup:
//! `<` does not occur in the JSON part, the rest is base64, and the policy of the page lets no script run but its own.

mod columns;
mod names;
mod parts;
mod pins;
mod processes;
mod scenarios;
mod summary;
mod template;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use columns::Columns;
pub use processes::MeasuredProcess;
pub use summary::{
    BiggestFunction, CopiesSummary, CoverageSummary, ExecutedSummary, FoundBy, ModelFaults, ModelTotal,
    PinReasonTotal, Pins, ScenarioTotal, Summary,
};
pub use template::Document;

use layout_algos::score::Span;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_image::functions::FunctionTable;
use reorder_layout::memory::MemoryModel;
use reorder_layout::opened::OpenedImage;
use reorder_layout::scenario::Scenario;
use reorder_layout::simulate::{Comparison, ImageNames, OtherBuild};
use reorder_trace::Coverage;

use crate::sizes::Sizes;

/// What a page is made of.
#[derive(Clone, Copy)]
pub struct PageRequest<'run> {
    /// The names of the images.
    pub names: &'run ImageNames,
    /// The image that the traces belong to.
    pub image: &'run OpenedImage<'run>,
    /// Its functions.
    pub functions: &'run FunctionTable<'run>,
    /// The scenarios, by name.
    pub scenarios: &'run [Scenario<'run>],
    /// The coverage of the traces.
    pub coverage: &'run Coverage,
    /// The second image, if there is one.
    pub comparison: Option<Comparison<'run>>,
    /// The memory models; at least one.
    pub models: &'run [MemoryModel],
    /// What was measured of processes that run the image.
    pub processes: &'run [MeasuredProcess],
    /// The compressed sizes of the images, if they were asked for.
    pub sizes: Option<&'run Sizes>,
}

impl PageRequest<'_> {
    /// Each function's place in the second image.
    fn new_places(&self) -> Option<Vec<Option<Span>>> {
        let comparison = self.comparison?;
        Some(self.functions.iter().map(|(index, function)| comparison.place(index, function)).collect())
    }

    /// The other build, if the second image is one.
    fn other_build(&self) -> Option<&OtherBuild> {
        match self.comparison? {
            Comparison::Build(build) => Some(build),
            Comparison::Image(_) => None,
        }
    }

    fn text(&self) -> Vec<Range<Address>> {
        self.image.text()
    }
}

/// The figures and the page of one image.
///
/// # Errors
/// As [`pages`].
pub fn page(request: PageRequest<'_>) -> Result<(Summary, Document)> {
    let part = part(&request);
    let document = template::document(std::slice::from_ref(&part))?;
    Ok((part.summary, document))
}

/// The figures of each image, and one page that shows one of them at a time.
///
/// # Errors
/// A summary that cannot be written as JSON, which is a defect of its type.
pub fn pages(requests: &[PageRequest<'_>]) -> Result<(Vec<Summary>, Document)> {
    let parts: Vec<Part> = requests.iter().map(part).collect();
    let document = template::document(&parts)?;
    Ok((parts.into_iter().map(|part| part.summary).collect(), document))
}

/// What the page holds of one image.
struct Part {
    summary: Summary,
    columns: Columns,
    names: names::Names,
}

fn part(request: &PageRequest<'_>) -> Part {
    let pins = {
        let _phase = tracing::info_span!("analyse").entered();
        pins::pins(request.image, request.functions)
    };
    let results = {
        let _phase = tracing::info_span!("simulate").entered();
        scenarios::simulate(request)
    };
    let _phase = tracing::info_span!("assemble").entered();
    let summary = summary::summarise(request, &results, &pins);
    let columns = columns::columns(request, results, pins);
    let names = names::names(request.functions);
    Part { summary, columns, names }
}
