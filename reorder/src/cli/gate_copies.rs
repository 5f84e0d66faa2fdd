//! An image with copies, for `reorder gate`: the image without them, of which the traces usually are, and where its code runs
//! in the image with copies.

use std::path::Path;

use crate::cli::scenarios_input::Starts;
use crate::gate::Remark;
use crate::hints;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::macho::is_macho;
use reorder_layout::opened::OpenedImage;
use reorder_relocate::apply::earlier_copies::without_earlier_copies;
use reorder_report::table::counted;
use reorder_verify::{AddressMoves, recover_moves};

/// The image without its copies.
pub(super) struct WithoutCopies {
    /// The whole file.
    pub(super) bytes: Vec<u8>,
    /// Where its code is in the image with copies.
    pub(super) moves: AddressMoves,
}

impl WithoutCopies {
    /// The image without the copies that the one at `path`, in `bytes`, has; `None` if it has none. It is proven that adding the
    /// copies gives `bytes`. An image that cannot be led back is judged as it is, with a remark, but is no `baseline`: its faults are not
    /// those of the code that runs.
    ///
    /// # Errors
    /// Damaged files; refusals of a baseline.
    pub(super) fn of(
        path: &Path,
        bytes: &[u8],
        is_baseline: bool,
        remarks: &mut Vec<Remark>,
    ) -> Result<Option<Self>> {
        if is_macho(bytes) {
            return Ok(None);
        }
        let in_file = |error: Error| error.in_file(path);
        match without_earlier_copies(&ElfFile::parse_any_processor(bytes).map_err(in_file)?) {
            Ok(None) => Ok(None),
            Ok(Some(whole)) => {
                let moves = recover_moves(&whole, bytes).map_err(in_file)?;
                Ok(Some(Self { bytes: whole, moves }))
            }
            Err(Error { kind: ErrorKind::Refused(refusal), .. }) if !is_baseline => {
                remarks.push(Remark {
                    cause: format!(
                        "page faults are those of the original functions, not of their copies: {refusal}"
                    ),
                    next: Some(hints::text(&refusal.cure)),
                });
                Ok(None)
            }
            Err(error) => Err(in_file(error)),
        }
    }
}

/// The image that the traces are of, and its runs: the one without copies, unless more of their events are found in the
/// `judged` one.
///
/// # Errors
/// Traces that fit neither.
pub(super) fn traced<'run, 'data>(
    judged: &'run OpenedImage<'data>,
    without: Option<&'run OpenedImage<'data>>,
    resolve: impl Fn(&OpenedImage<'_>) -> Result<Starts>,
) -> Result<(&'run OpenedImage<'data>, Starts)> {
    let Some(without) = without else { return Ok((judged, resolve(judged)?)) };
    let found = resolve(without);
    let coverage = |starts: &Starts| (starts.traces.coverage.resolved(), starts.traces.coverage.events);
    let (resolved, events) = found.as_ref().map_or((0, u64::MAX), coverage);
    if resolved < events {
        let own = resolve(judged);
        if own.as_ref().map_or(0, |starts| coverage(starts).0) > resolved {
            return Ok((judged, own?));
        }
    }
    Ok((without, found?))
}

/// What is judged of an image with copies.
pub(super) fn remark(without: &WithoutCopies, is_traced_without: bool, starts: &Starts) -> Remark {
    let fragments = counted(without.moves.copies().len() as u64, "fragment");
    if !is_traced_without {
        let cause = format!(
            "the traces are of the image with its copies, so the copies of {fragments} count as functions"
        );
        return Remark { cause, next: None };
    }
    let have_blocks = starts.traces.traces.iter().any(|trace| !trace.blocks.is_empty());
    Remark {
        cause: format!(
            "the image has copies of {fragments}: page faults count copies and originals, as the recorded runs would execute \
             them; functions, their changes and pins are those of the image without the copies"
        ),
        next: (!have_blocks)
            .then(|| "give traces of the image without the copies, recorded with --blocks".to_owned()),
    }
}
