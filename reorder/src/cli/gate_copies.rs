//! An image with copies, for `reorder gate`: the image without them, which traces are of, and where its code runs in the other.

use std::path::Path;

use crate::gate::Remark;
use crate::hints;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_image::elf::file::ElfFile;
use reorder_image::macho::is_macho;
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
    /// Leads the image at `path`, in `bytes`, back; `None` if it has no copies. That the image is this one with copies is proven. An image that
    /// cannot be led back is judged as it is, with a remark.
    ///
    /// # Errors
    /// Damaged files.
    pub(super) fn of(path: &Path, bytes: &[u8], remarks: &mut Vec<Remark>) -> Result<Option<Self>> {
        if is_macho(bytes) {
            return Ok(None);
        }
        let in_file = |error: Error| error.in_file(path);
        match without_earlier_copies(&ElfFile::parse_any_processor(bytes).map_err(in_file)?) {
            Ok(None) => Ok(None),
            Ok(Some(whole)) => {
                let moves = recover_moves(&whole, bytes).map_err(in_file)?;
                remarks.push(remark(&moves));
                Ok(Some(Self { bytes: whole, moves }))
            }
            Err(Error { kind: ErrorKind::Refused(refusal), .. }) => {
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

fn remark(moves: &AddressMoves) -> Remark {
    let fragments = counted(moves.copies().len() as u64, "fragment");
    Remark {
        cause: format!(
            "the image has copies of {fragments}: page faults are those of copies and originals, wherever the recorded runs \
             would execute; functions, their changes and pins are those of the image without the copies"
        ),
        next: Some("give traces of the image without the copies, recorded with --blocks".to_owned()),
    }
}
