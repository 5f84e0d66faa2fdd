//! The map of an image that has copies, whose functions did not move: the way back.
//!
//! Such a map has no moves. It has the bytes of the input that differ, and its size; what follows is copies.

use super::{Applied, differences, restore_rest};
use crate::layout_map::{LayoutMap, Side, digest};
use reorder_base::error::{Error, Result};
use reorder_base::hexadecimal::encode;
use reorder_base::hint::{Hint, MapHint};
use reorder_image::elf::file::ElfFile;

/// The map between `input` and `applied`, its copy with copies of code.
///
/// # Errors
/// The output cannot be read.
pub fn map_of_copies(input: &ElfFile<'_>, applied: &Applied) -> Result<LayoutMap> {
    let output = ElfFile::parse(&applied.bytes)?;
    Ok(LayoutMap {
        old_digest: digest(input.bytes),
        new_digest: digest(&applied.bytes),
        old_bytes: Some(input.bytes.len() as u64),
        build_ids: input.build_id().zip(output.build_id()).map(|(old, new)| (encode(old), encode(new))),
        fills: differences(input.bytes, &applied.bytes),
        ..LayoutMap::default()
    })
}

/// Whether `map` is one of [`map_of_copies`].
#[must_use]
pub fn is_of_copies(map: &LayoutMap) -> bool {
    map.old_bytes.is_some() && map.moves.is_empty() && map.copies.is_empty()
}

/// The image without copies, from the image `file`.
///
/// # Errors
/// A map of another image, one that says nothing about this image because it is the one without copies, and a damaged one.
pub fn without_copies(file: &ElfFile<'_>, map: &LayoutMap) -> Result<Applied> {
    if map.side_of(file.bytes)? == Side::Old {
        return Err(Error::usage("the map leads back only: it does not say what is copied")
            .with_hint(Hint::Map(MapHint::OfCopies)));
    }
    let size = map.old_bytes.and_then(|size| usize::try_from(size).ok());
    let mut bytes = size.and_then(|size| file.bytes.get(..size)).unwrap_or(file.bytes).to_vec();
    restore_rest(map, &mut bytes);
    if digest(&bytes) != map.old_digest {
        return Err(Error::usage("the map does not lead to the image that it describes")
            .with_hint(Hint::Map(MapHint::Unchanged)));
    }
    Ok(Applied { bytes, ..Applied::default() })
}
