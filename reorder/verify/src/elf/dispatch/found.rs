//! What the analysis of a region takes besides its code, and what it gives.

use super::endings::Endings;
use super::kept_registers::KeptRegisters;
use super::region::Thunks;
use super::value::{Bounds, Word};
use reorder_base::address::Address;

/// A jump or call to an address plus a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Computed {
    /// The instruction.
    pub(crate) place: u64,
    /// The address that the word is added to, and the word; several if the code selects one of several tables, none when
    /// they are unknown.
    pub(crate) sums: Vec<(u64, Word)>,
    /// Possible values of the word's index.
    pub(crate) index: Bounds,
    pub(crate) is_call: bool,
    /// The address may be any.
    pub(crate) is_from_anywhere: bool,
}

/// Which tables lead jumps on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Tables of distances. Jumps to addresses in data are not followed.
    Distances,
    /// Also tables of addresses that the code names and no one writes to: in a program at a fixed address.
    Addresses,
}

/// Result of the analysis of a region.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// Computed jumps and calls in address order.
    pub(crate) computed: Vec<Computed>,
    /// Jumps to addresses that tables hold, in a program at a fixed address: places and words; `None` if the table is not known.
    pub(crate) loaded: Vec<(u64, Option<Word>)>,
    /// Whether some other computed jump leads to a place that no table is known to hold: another function, most often.
    pub(crate) jumps_elsewhere: bool,
    /// Words of tables that the code reads, in the order of the instructions.
    pub(crate) reads: Vec<Word>,
    /// Whether the budget was enough for the whole region.
    pub(crate) is_complete: bool,
}

/// What is known of the image around a region.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) thunks: &'a Thunks,
    pub(crate) endings: &'a Endings<'a>,
    pub(crate) kept: &'a KeptRegisters<'a>,
    /// Certain starts of tables, sorted: a table of unknown length ends at the next one.
    pub(crate) starts: &'a [Address],
    pub(crate) follow: Follow,
}
