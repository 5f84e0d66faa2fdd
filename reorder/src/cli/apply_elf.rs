//! `reorder apply` for one ELF image: in place, then copies of functions used at startup that could not move.

use std::path::Path;

use clap::ValueEnum;

use crate::cli::applied::AppliedFile;
use crate::cli::apply_blocks::with_blocks;
use crate::cli::arrangement::{ArrangementArguments, Wanted};
use crate::cli::context::Context;
use crate::cli::previous::NewLayout;
use crate::cli::{refusal, trades};
use crate::warnings;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::{Memory, Room, Traded, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::clones::with_clones;
use reorder_relocate::apply::copies_map::{is_of_copies, map_of_copies, without_copies};
use reorder_relocate::apply::earlier_copies::without_earlier_copies;
use reorder_relocate::apply::elf::{apply, layout_map};
use reorder_relocate::apply::{Applied, ApplySummary};
use reorder_relocate::layout_map::LayoutMap;
use reorder_trace::ImageIdentity;

/// How an ELF image is to be changed.
pub(crate) struct ElfRequest<'run> {
    /// Where functions are to go.
    pub arrangement: &'run ArrangementArguments,
    /// How the image is rewritten.
    pub options: RelocateOptions,
    /// Whether to make a map.
    pub with_map: bool,
    /// Which of the functions used at startup are copied.
    pub clones: Option<CloneChoice>,
    /// What is laid out.
    pub layout: LayoutKind,
}

/// What is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayoutKind {
    /// Functions, in place; the file keeps its size
    #[default]
    Functions,
    /// Copies of the code that recorded runs execute, in a new segment; no function moves
    Blocks,
    /// Functions in place, and copies of the code that recorded runs execute
    Both,
}

/// Which functions are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloneChoice {
    /// Those that cannot move in place.
    Stayed,
    /// All functions used at startup; no function moves in place.
    All,
}

/// Moves the functions of the image at `path`.
///
/// # Errors
/// Refusals, malformed tables, no traces of this image.
pub(crate) fn apply_elf(
    path: &Path,
    request: &ElfRequest<'_>,
    context: &Context,
    bytes: &[u8],
) -> Result<AppliedFile> {
    let file = ElfFile::parse(bytes)?;
    if let Some(map) = request.arrangement.map()?.filter(is_of_copies) {
        let functions = ElfFunctions::collect(&file)?.table.len();
        let Applied { bytes: restored, map, summary } = without_copies(&file, &map)?;
        let applied = Applied { bytes: restored, map, summary: ApplySummary { functions, ..summary } };
        return Ok(finished(applied, bytes, Vec::new(), Traded::default()));
    }
    let Some(whole) = without_earlier_copies(&file)? else {
        return apply_whole(path, request, context, &file);
    };
    let mut applied = apply_whole(path, request, context, &ElfFile::parse(&whole)?)?;
    applied.is_unchanged = applied.bytes == bytes;
    Ok(applied)
}

/// Moves the functions of an image without copies.
fn apply_whole(
    path: &Path,
    request: &ElfRequest<'_>,
    context: &Context,
    file: &ElfFile<'_>,
) -> Result<AppliedFile> {
    let functions = ElfFunctions::collect(file)?;
    let identity = ImageIdentity::of(path, file.build_id());
    let functions = request.arrangement.with_learned(functions, (path, file))?;
    if request.layout != LayoutKind::Functions && request.arrangement.has_order() {
        return Err(Error::usage("an order of functions does not say which blocks run")
            .with_hint("leave out --layout, or give traces in place of the order"));
    }
    if request.layout == LayoutKind::Both && request.with_map {
        return Err(Error::usage("a map cannot undo moved functions and copies at the same time")
            .with_hint("leave out --map, or use --layout functions or --layout blocks"));
    }
    let with_blocks = |applied| {
        let table = (file, &functions);
        with_blocks(applied, path, table, request.arrangement, request.options, context)
    };
    if request.layout == LayoutKind::Blocks {
        request.arrangement.previous.refuse_without_moves()?;
        let applied = with_blocks(Applied::unmoved(file, &functions.table))?;
        let maps = match request.with_map {
            true => vec![("", map_of_copies(file, &applied)?)],
            false => Vec::new(),
        };
        return Ok(finished(applied, file.bytes, maps, Traded::default()));
    }
    let analysed = (request.clones != Some(CloneChoice::All)).then(|| {
        let _phase = tracing::info_span!("analyse").entered();
        Analysis::new(file, &functions)
    });
    let analysis = match analysed.transpose() {
        Ok(analysis) => analysis,
        Err(error) if is_too_little_known(&error) && request.clones.is_some() => {
            context.talk.warning(&format!("no function moves in place: {error}"), None);
            None
        }
        Err(error) => return Err(refusal::with_cure(error)),
    };
    // Functions that cannot move are part of the order too if they are to be copied.
    let room = match &analysis {
        Some(analysis) if request.clones.is_none() => Room::InPlace(analysis),
        _ => Room::Linker,
    };
    let wanted = request.arrangement.wanted(
        path,
        &identity,
        &functions.table,
        Memory::default(),
        &context.talk,
        |traces, layout| {
            let made = lay_out(file, &functions.table, traces, room, layout)?;
            let new =
                NewLayout { functions: &functions.table, traces, room, request: layout, architecture: None };
            request.arrangement.previous.favour(made, new)
        },
    )?;
    let has_moved = analysis.is_some();
    let options = trades::relocate_options(&wanted.traded(), request.options);
    let mut applied = match analysis {
        Some(analysis) => apply(file, &functions, analysis, wanted.arrangement(), options)?,
        None => Applied::unmoved(file, &functions.table),
    };
    if request.clones.is_some() {
        let Wanted::Order(order, needed, _) = &wanted else {
            return Err(Error::usage("a map says where functions move but not what is copied")
                .with_hint("leave out --clone, or give traces in place of the map"));
        };
        let first = order.get(..*needed).unwrap_or(order);
        let starts: Vec<_> = first.iter().map(|&function| functions.table.get(function).start).collect();
        applied = with_clones(&applied, &starts, has_moved, request.options)?;
    }
    if request.layout == LayoutKind::Both {
        applied = with_blocks(applied)?;
    }
    let maps = match request.with_map {
        true => vec![("", layout_map(file, &functions.table, &applied, options)?)],
        false => Vec::new(),
    };
    Ok(finished(applied, file.bytes, maps, wanted.traded()))
}

fn finished(
    applied: Applied,
    before: &[u8],
    maps: Vec<(&'static str, LayoutMap)>,
    traded: Traded,
) -> AppliedFile {
    let is_unchanged = applied.bytes == before;
    let Applied { bytes, summary, .. } = applied;
    let warnings = summary.warnings.iter().map(warnings::text).collect();
    AppliedFile { bytes, summary, warnings, is_unchanged, maps, left: Vec::new(), traded }
}

fn is_too_little_known(error: &Error) -> bool {
    matches!(&error.kind, ErrorKind::Refused(refusal) if refusal::is_too_little_known(refusal))
}
