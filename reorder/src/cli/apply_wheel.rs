//! `reorder apply` for Python wheels: every image that has traces, and the list of digests.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::applied::{AppliedFile, LeftImage, joined, of_only_image};
use crate::cli::apply_elf::{ElfRequest, apply_elf};
use crate::cli::apply_macho::{MachORequest, apply_file};
use crate::cli::context::Context;
use crate::hints;
use crate::wheel::Wheel;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_image::macho::is_macho;
use reorder_relocate::apply::ApplySummary;

/// Enough of a file to see whether it is an image.
const HEAD_BYTES: u64 = 8;

/// Moves the functions of the images in the wheel `bytes`. Images without traces, and refused ones, are left unchanged.
///
/// # Errors
/// When no image moves: the first reason; damaged archives.
pub(super) fn apply_wheel(
    elf: &ElfRequest<'_>,
    macho: &MachORequest<'_>,
    bytes: &[u8],
    context: &Context,
) -> Result<AppliedFile> {
    let wheel = Wheel::open(bytes)?;
    let mut replaced = BTreeMap::new();
    let mut total = ApplySummary::default();
    let (mut left, mut warnings, mut first_reason) = (Vec::new(), Vec::new(), None);
    let mut traded = Vec::new();
    for name in wheel.names() {
        let path = Path::new(name);
        let applied = wheel.read(name, Some(HEAD_BYTES)).and_then(|head| {
            let is_elf = head.starts_with(b"\x7fELF");
            if !is_elf && !is_macho(&head) {
                return Ok(None);
            }
            let image = wheel.read(name, None)?;
            match is_elf {
                true => apply_elf(path, elf, context, &image),
                false => apply_file(&MachORequest { path, ..*macho }, &image, context),
            }
            .map(Some)
        });
        match applied {
            Ok(None) => {}
            Ok(Some(applied)) => {
                let inner = applied.left.into_iter();
                left.extend(
                    inner.map(|image| LeftImage { image: format!("{name} ({})", image.image), ..image }),
                );
                total = joined(total, applied.summary);
                warnings.extend(applied.warnings);
                traded.push((name.to_owned(), applied.traded));
                if !applied.is_unchanged {
                    replaced.insert(name.to_owned(), applied.bytes);
                }
            }
            Err(error)
                if matches!(error.kind, ErrorKind::Usage | ErrorKind::Refused(_) | ErrorKind::Malformed) =>
            {
                context.talk.warning(
                    &format!("{name} stays as it is: {error}"),
                    error.hint.as_ref().map(hints::text).as_deref(),
                );
                left.push(LeftImage::new(name, &error));
                first_reason.get_or_insert(error);
            }
            Err(error) => return Err(error.in_file(path)),
        }
    }
    if total.functions == 0 {
        return Err(first_reason.unwrap_or_else(|| {
            Error::usage("the wheel holds neither programs nor libraries")
                .with_hint("wheels of pure Python have no functions to move")
        }));
    }
    let is_unchanged = replaced.is_empty();
    let bytes = if is_unchanged { bytes.to_vec() } else { wheel.replace(&replaced)? };
    Ok(AppliedFile {
        bytes,
        summary: total,
        warnings,
        is_unchanged,
        maps: Vec::new(),
        left,
        traded: of_only_image(traded, &context.talk),
    })
}
