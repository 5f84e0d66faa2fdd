//! Orders the functions of a finished image, for linkers that take no order: without a second link.

use std::path::Path;

use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::{Memory, Room, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Arrangement;
use reorder_relocate::apply::elf::apply;
use reorder_system::mapped::map_image;

use super::build_names::BuildNames;
use super::invocation::Invocation;
use super::link::Failure;
use super::linked::Starts;
use super::options::Options;
use super::report::{LinkReport, NamesFound, StartSpans};

/// Replaces the image at `path`, fresh from the linker, by its ordered form, and gives an account and the new
/// contents. On an error the image is unchanged.
///
/// # Errors
/// Images that cannot be moved safely, traces that do not fit.
pub(crate) fn order_in_place(
    path: &Path,
    invocation: &Invocation,
    options: &Options,
    linker: &str,
) -> std::result::Result<(LinkReport, Vec<u8>), Failure> {
    let bytes = map_image(path)?;
    let file = ElfFile::parse(&bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    let table = &functions.table;
    let starts = Starts::resolve(path, table, invocation, options, &BuildNames::new(None))?;
    let analysis = Analysis::new(&file, &functions)?;
    let request = options.request(Memory::default());
    let mut layout = lay_out(&file, table, &starts.traces.traces, Room::InPlace(&analysis), &request)?
        .with_hot(&starts.traces.counts, table);
    // The other functions keep their order, after those placed deliberately.
    layout.order.truncate(layout.chosen);
    let relocation =
        RelocateOptions { debug: options.debug.map(Into::into).unwrap_or_default(), ..Default::default() };
    let arrangement = Arrangement::Needed(&layout.order, layout.needed);
    let applied = apply(&file, &functions, analysis, arrangement, relocation)?;
    let moved = |address| Some(Address(applied.map.map(address).0));
    let names = NamesFound::new(&starts.names);
    let report = LinkReport {
        output: invocation.output.display().to_string(),
        is_ordered: true,
        linker: linker.to_owned(),
        route: super::route::Route::PostLink.name().to_owned(),
        functions: table.len() as u64,
        needed: layout.needed as u64,
        ordered: layout.order.len() as u64,
        ordered_bytes: layout.order.iter().map(|&index| table.get(index).size()).sum(),
        moved_along: 0,
        sharing: 0,
        starts: starts.traces.traces.len() as u64,
        faults: names
            .tells_of_faults()
            .then(|| StartSpans::new(table, &starts.traces).faults(moved, &request)),
        names,
        notes: starts.notes.clone(),
        layout: format!("{request:?}"),
        is_remembered: false,
    };
    replace(path, &applied.bytes)?;
    Ok((report, applied.bytes))
}

/// Only we use the file until it gets its name, but it may be mapped: it is replaced, not overwritten.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |error| Error::io(path, error);
    let permissions = std::fs::metadata(path).map_err(failed)?.permissions();
    let mut beside = path.as_os_str().to_owned();
    beside.push(".moved");
    std::fs::write(&beside, bytes).map_err(failed)?;
    std::fs::set_permissions(&beside, permissions).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}
