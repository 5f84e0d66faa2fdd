//! Compares AArch64 code of two images, in either format.
//!
//! ```text
//! words of a piece of code, old and new ─┐
//! Images: where addresses went ──────────┼─> CodePair: every word is the same or follows ─> first difference
//! MovedPages: what may have changed ─────┘     └─> flow: registers, where a pair of words forms an address
//! ```
//!
//! Nothing here uses the decoder or the analysis of `reorder-image`.

mod code_pair;
mod constants;
mod dispatch;
mod effects;
mod flow;
mod form;
mod images;
mod own_distances;
mod step;
mod sums;
mod switch;

pub(super) use code_pair::{CodePair, Counts, runs_on, without_literals};
pub(super) use constants::constants;
pub(super) use dispatch::{ComputedSum, Named, addresses, dispatches};
pub(super) use effects::effects;
pub(super) use form::{Form, IMMEDIATE, NOP, form, is_add, page, page_offset, register};
pub(super) use images::{Images, MovedPages};
pub(super) use own_distances::own_distances;
pub(super) use sums::summed_addresses;
pub(super) use switch::leaving_targets;
