//! Where computed jumps and calls of x86-64 functions lead, proven from the code of the old image alone.
//!
//! ```text
//! function + parts ─> Region ─> flow: State at every place ─> at each computed jump: address + word [table, index]
//!                                                                    └─ from where to where the index reaches
//! ```
//!
//! Words of data are never interpreted here: the end of a table follows from the values of the index, not from what its
//! words look like. Addresses are plain numbers: values of registers mix with them, and all of them belong to the old image.

mod catching;
mod choice;
mod condition;
mod conditional_move;
mod endings;
mod flow;
mod formed;
mod found;
mod hub;
mod interval;
mod join;
mod kept_registers;
mod operand;
mod parts;
mod region;
mod shared_cells;
mod spilled_parts;
mod state;
mod step;
mod sums;
mod targets;
mod value;

pub(super) use endings::Endings;
pub(super) use flow::analyse;
pub(super) use formed::RegisterSet;
pub(super) use found::{Follow, Surroundings};
pub(super) use kept_registers::KeptRegisters;
pub(super) use region::{Entry, Region, Thunks, replaces_return_address};
pub(super) use state::number_of;
pub(super) use targets::targets;
pub(super) use value::{Bounds, Word};
