//! Digests for functions that have no name: with these, a trace of a stripped image also serves later builds.

use std::collections::BTreeSet;

use super::RecordedTrace;
use super::image::TracedImage;
use reorder_base::error::Result;
use reorder_image::code_digest::FunctionDigests;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionIndex;
use reorder_trace::{Event, Location};

/// Adds them to the events of `traces`, each of which is of the image with that number.
///
/// # Errors
/// Images that changed since they were read.
pub(super) fn add(images: &[TracedImage], traces: &mut [(usize, RecordedTrace)]) -> Result<()> {
    for (number, image) in images.iter().enumerate() {
        let of_image = || traces.iter().filter(|(index, _)| *index == number);
        if !of_image().flat_map(|(_, recorded)| &recorded.trace.events).any(is_nameless) {
            continue;
        }
        let in_file = |error: reorder_base::error::Error| error.in_file(image.path());
        let file = ElfFile::parse(image.file()).map_err(in_file)?;
        let learned: Vec<_> = image.starts.learned().collect();
        let functions = ElfFunctions::collect_with(&file, &learned).map_err(in_file)?.table;
        let index = |event: &Event| -> Option<FunctionIndex> {
            match event.location {
                Location::Image(address) if is_nameless(event) => functions.starting_at(address),
                _ => None,
            }
        };
        let wanted: BTreeSet<FunctionIndex> =
            of_image().flat_map(|(_, recorded)| &recorded.trace.events).filter_map(index).collect();
        let digests = FunctionDigests::of(&functions, wanted);
        for (_, recorded) in traces.iter_mut().filter(|(index, _)| *index == number) {
            for event in &mut recorded.trace.events {
                event.digest = index(event).and_then(|index| digests.get(index));
            }
        }
    }
    Ok(())
}

fn is_nameless(event: &Event) -> bool {
    event.name.is_none()
}
