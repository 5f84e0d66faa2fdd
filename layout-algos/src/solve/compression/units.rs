//! What moves as one when functions are ordered by content.
//!
//! A new run pays about one page for each unit that it needs, however small the unit is; a compressor gains in proportion
//! to its bytes. So neighbours of the order by pages move together until they are worth a page, and a function that is
//! large by itself moves alone.

use crate::ids::FunctionId;
use crate::problem::LayoutProblem;

/// Functions that stay next to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) functions: Vec<FunctionId>,
    /// Position of its first function in the order by pages.
    pub(super) position: u32,
}

/// A function of at least this share of a unit's bytes is one of its own.
const OWN_SHARE: u64 = 4;

/// `tail`, cut into units of about `bytes`: neighbours, apart from functions that are units of their own.
pub(super) fn units(problem: &LayoutProblem, tail: &[FunctionId], bytes: u64) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut open = Unit { functions: Vec::new(), position: 0 };
    let mut open_bytes = 0u64;
    for (position, &function) in tail.iter().enumerate() {
        let position = position as u32;
        let size = problem.size(function);
        if size.saturating_mul(OWN_SHARE) >= bytes {
            units.push(Unit { functions: vec![function], position });
            continue;
        }
        if open.functions.is_empty() {
            open.position = position;
        }
        open.functions.push(function);
        open_bytes = open_bytes.saturating_add(size);
        if open_bytes >= bytes {
            units.push(std::mem::replace(&mut open, Unit { functions: Vec::new(), position }));
            open_bytes = 0;
        }
    }
    if !open.functions.is_empty() {
        units.push(open);
    }
    units
}
