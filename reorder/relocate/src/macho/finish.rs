//! The last step of a move: all tables follow the map, and the image is signed.

use super::signature::{Signer, losses};
use super::{entry, identity, link_edit, unwind};
use crate::address_map::AddressMap;
use crate::warning::Warning;
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::macho::eh_frame::frame_entries;
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::signature::Signature;

/// A whole image.
#[derive(Clone, Debug)]
pub struct Finished {
    /// All of it.
    pub bytes: Vec<u8>,
    /// What it lacks, such as a developer's signature.
    pub warnings: Vec<Warning>,
}

/// Brings the tables up to date in `output`, a copy of the image whose sections of code and data are already rewritten
/// (`__eh_frame` with them).
///
/// # Errors
/// Refuses (M14) unwind information that does not fit and (M11, M13) a map that splits what an unwind entry covers;
/// reports malformed tables.
pub fn finish(file: &MachOFile<'_>, map: &AddressMap, mut output: Vec<u8>) -> Result<Finished> {
    if output.len() != file.bytes.len() {
        return Err(Error::usage("the rewritten image differs in size from the input"));
    }
    if let Some(entry) = frame_entries(file)?.iter().find(|entry| !map.moves_as_one(&entry.range())) {
        return Err(Refusal::new(
            RefusalCode::MachOUnwindEncoding,
            "what one unwind entry covers would be moved apart",
            "report this image; it was left untouched",
        )
        .at(entry.start)
        .into());
    }
    unwind::move_unwind_info(file, map, &mut output)?;
    entry::move_entry(file, map, &mut output)?;
    identity::change_identity(file, map, &mut output)?;
    let signature = Signature::read(file)?;
    let signer = signature.as_ref().map(|old| Signer::new(file, old));
    let bytes = link_edit::rebuild(file, map, signer.as_ref(), output)?;
    Ok(Finished { bytes, warnings: signature.as_ref().map(losses).unwrap_or_default() })
}
