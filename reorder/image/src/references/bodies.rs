//! Which bytes each function owns, so that no byte is decoded twice.
//!
//! Takes the function table; gives [`Body`] values. Functions that overlap share bytes, and a table may claim that all
//! of them do: each byte belongs to the last function that starts at or before it.

use super::regions::Regions;
use crate::functions::{FunctionIndex, FunctionTable};
use reorder_base::address::Address;

/// One function's own bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body<'data> {
    pub(super) start: Address,
    pub(super) bytes: &'data [u8],
    /// The function continues into the next one.
    pub(super) overlaps_next: bool,
}

/// The bytes that `function` owns: up to its end or the start of the next function.
pub(super) fn body<'data>(
    regions: &Regions<'data>,
    functions: &FunctionTable<'_>,
    index: FunctionIndex,
) -> Body<'data> {
    let function = functions.get(index);
    let next = functions.after(index).map(|next| next.start).filter(|next| *next < function.end);
    let end = next.unwrap_or(function.end);
    let bytes = regions.bytes(function.start, end);
    Body { start: function.start, bytes, overlaps_next: next.is_some() }
}
