//! Tables of four-byte distances to functions, which have no dynamic relocations.
//!
//! Takes objects; gives the functions that the words at an object's start lead to, counted from the word itself or
//! from the object. Compilers write such tables for relative virtual tables and for switches between functions. Tables
//! of distances to parts of a function are ignored: these are references of the function to itself.

use super::objects::DataObject;
use super::regions::Regions;
use crate::functions::{FunctionIndex, FunctionTable};

const WORD: u64 = 4;

/// The functions that a table at the start of `object` leads to; the first word that is not a distance ends it.
pub(super) fn table_targets(
    regions: &Regions<'_>,
    functions: &FunctionTable<'_>,
    object: DataObject,
) -> impl Iterator<Item = FunctionIndex> {
    let is_aligned = object.start.0.is_multiple_of(WORD);
    let bytes = if is_aligned { regions.bytes(object.start, object.end) } else { &[] };
    bytes.chunks_exact(WORD as usize).enumerate().map_while(move |(index, word)| {
        let distance = i64::from(i32::from_le_bytes(word.try_into().ok()?)) as u64;
        let place = object.start.plus(index as u64 * WORD);
        [object.start, place].into_iter().find_map(|base| functions.starting_at(base.plus(distance)))
    })
}
