//! `reorder apply` for Mach-O files: image by image.

use std::path::Path;

use crate::cli::applied::{AppliedFile, LeftImage, joined, of_only_image};
use crate::cli::arrangement::ArrangementArguments;
use crate::cli::context::Context;
use crate::cli::previous::NewLayout;
use crate::hints;
use crate::warnings;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::universal::{Slice, choose_among, replace, slices};
use reorder_layout::{Memory, Room, Traded, lay_out_functions_in};
use reorder_relocate::apply::Applied;
use reorder_relocate::apply::macho::{MachOOptions, apply, layout_map};
use reorder_relocate::layout_map::LayoutMap;
use reorder_trace::ImageIdentity;

/// How each image is to be changed.
pub(crate) struct MachORequest<'run> {
    /// Where the file is.
    pub path: &'run Path,
    /// Where functions are to go.
    pub arrangement: &'run ArrangementArguments,
    /// The only image to move, by its processor's name; all if `None`.
    pub architecture: Option<&'run str>,
    /// Refusals that the user can override.
    pub options: MachOOptions,
    /// Whether to make maps.
    pub with_maps: bool,
}

/// Moves the functions of the images in `bytes`; a refused image of a universal file is left unchanged.
///
/// # Errors
/// When no image could be moved: the first refusal.
pub(crate) fn apply_file(request: &MachORequest<'_>, bytes: &[u8], context: &Context) -> Result<AppliedFile> {
    let all = slices(bytes)?;
    let is_wanted =
        |slice: &Slice| request.architecture.is_none_or(|wanted| slice.architecture == Some(wanted));
    if !all.iter().any(is_wanted) {
        // The error says which images there are.
        choose_among(&all, request.architecture)?;
    }
    let is_universal = all.len() > 1;
    let mut images = vec![None; all.len()];
    let (mut maps, mut summaries, mut said) = (Vec::new(), Vec::new(), Vec::new());
    let (mut left, mut refused, mut traded) = (Vec::new(), None, Vec::new());
    for (slice, image) in all.iter().zip(&mut images).filter(|(slice, _)| is_wanted(slice)) {
        let name = slice.architecture.unwrap_or("an unknown processor");
        match apply_slice(request, &bytes[slice.range.clone()], context) {
            Ok((applied, map, slice_traded)) => {
                traded.push((name.to_owned(), slice_traded));
                maps.extend(map.map(|map| (name, map)));
                // Each image of a universal file has a signature of its own.
                let place = if is_universal { format!("{name}: ") } else { String::new() };
                let told = applied.summary.warnings.iter().map(warnings::text);
                said.extend(told.map(|warning| format!("{place}{warning}")));
                summaries.push(applied.summary);
                *image = (!applied.map.is_identity()).then_some(applied.bytes);
            }
            Err(error) if is_universal && matches!(error.kind, ErrorKind::Refused(_)) => {
                let hint = error.hint.as_ref().map(hints::text);
                context
                    .talk
                    .warning(&format!("the image for {name} stays as it is: {error}"), hint.as_deref());
                left.push(LeftImage::new(name, &error));
                refused.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    let is_unchanged = images.iter().all(Option::is_none);
    match (summaries.into_iter().reduce(joined), refused) {
        (Some(summary), _) => {
            let bytes = replace(bytes, &all, images)?;
            Ok(AppliedFile {
                bytes,
                summary,
                warnings: said,
                is_unchanged,
                maps,
                left,
                traded: of_only_image(traded, &context.talk),
            })
        }
        (None, Some(error)) => Err(error),
        (None, None) => Err(Error::usage("the file has no image whose functions can be moved")
            .with_hint("see what is in it: reorder inspect FILE")),
    }
}

fn apply_slice(
    request: &MachORequest<'_>,
    bytes: &[u8],
    context: &Context,
) -> Result<(Applied, Option<LayoutMap>, Traded)> {
    let file = MachOFile::parse(bytes)?;
    let names = file.code_names()?;
    // Code in other sections does not move.
    let functions = names.functions_within(file.text().range());
    let analysis = {
        let _phase = tracing::info_span!("analyse").entered();
        MachOAnalysis::new(&file)?
    };
    let identity = ImageIdentity::of(request.path, file.uuid);
    let wanted = request.arrangement.wanted(
        request.path,
        &identity,
        &functions,
        Memory::of_macho(file.architecture),
        &context.talk,
        |traces, layout| {
            let room = Room::InMachO(&analysis);
            let made = lay_out_functions_in(&functions, traces, room, layout)?;
            let architecture = Some(file.architecture);
            let new = NewLayout { functions: &functions, traces, room, request: layout, architecture };
            request.arrangement.previous.favour(made, new)
        },
    )?;
    let applied = apply(&file, &functions, &analysis, wanted.arrangement(), request.options)?;
    let map = request.with_maps.then(|| layout_map(&file, &functions, &applied)).transpose()?;
    Ok((applied, map, wanted.traded()))
}
