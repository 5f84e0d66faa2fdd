//! The page that `reorder optimize --report` writes.

use std::path::Path;

use crate::page::{PageRequest, page};
use reorder_base::error::Result;
use reorder_image::functions::FunctionTable;
use reorder_layout::memory;
use reorder_layout::opened::OpenedImage;
use reorder_layout::scenario::Scenario;
use reorder_layout::simulate::{Comparison, ImageNames, Placement};
use reorder_system::write::Pending;
use reorder_trace::{Coverage, ResolvedTraces};
use reorder_verify::AddressMoves;

/// The page of these named `starts` of the image in `bytes`; it is written but not yet renamed to `place`.
///
/// # Errors
/// When the page cannot be written.
pub(super) fn pending_page(
    place: &Path,
    names: &ImageNames,
    bytes: &[u8],
    functions: &FunctionTable<'_>,
    starts: &[(&str, &ResolvedTraces)],
    (new, moves): (&[u8], &AddressMoves),
) -> Result<Pending> {
    let image = OpenedImage::parse(bytes, None)?;
    let mut coverage = Coverage::default();
    starts.iter().for_each(|(_, traces)| coverage.absorb(&traces.coverage));
    let scenarios: Vec<Scenario<'_>> = starts
        .iter()
        .filter(|(_, traces)| !traces.traces.is_empty())
        .map(|(name, traces)| Scenario { name: (*name).to_owned(), traces: traces.traces.iter().collect() })
        .collect();
    let (_, document) = page(PageRequest {
        names,
        image: &image,
        functions,
        scenarios: &scenarios,
        coverage: &coverage,
        comparison: Some(Comparison::Image(&Placement::of_image(&image, new, moves)?)),
        models: &memory::default_for_elf(),
        processes: &[],
        sizes: None,
    })?;
    Pending::whole(place, &document.0)
}
