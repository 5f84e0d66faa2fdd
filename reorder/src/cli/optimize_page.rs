//! The page that `reorder optimize --report` writes beside its output.

use std::path::Path;

use crate::error::Result;
use crate::image::functions::FunctionTable;
use crate::opened::OpenedImage;
use crate::page::{PageRequest, page};
use crate::scenario::Scenario;
use crate::simulate::{ImageNames, presets};
use crate::trace::{Coverage, ResolvedTraces};
use crate::verify::AddressMoves;
use crate::write::Pending;

/// The page of these `starts`, each by name, of the image in `bytes`; it waits for its name.
///
/// # Errors
/// When the page cannot be written.
pub(super) fn pending_page(
    place: &Path,
    names: &ImageNames,
    bytes: &[u8],
    functions: &FunctionTable<'_>,
    starts: &[(&str, &ResolvedTraces)],
    moves: &AddressMoves,
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
        moves: Some(moves),
        models: &presets::usual_for_elf(),
    })?;
    Pending::whole(place, &document.0)
}
