//! Where computed jumps and calls of x86-64 functions lead, proven from the code of the old image alone.
//!
//! ```text
//! function + parts ─> Region ─> flow: State at every place ─> at each computed jump: address + word [table, index]
//!                                                                    └─ from where to where the index reaches
//! ```
//!
//! Nothing is said about data here: the end of a table is what the index can be, never what the words look like.

mod condition;
mod endings;
mod flow;
mod formed;
mod hub;
mod interval;
mod join;
mod kept_registers;
mod operand;
mod region;
mod state;
mod step;
mod targets;
mod value;

pub(super) use endings::Endings;
pub(super) use flow::{Surroundings, analyse};
pub(super) use kept_registers::KeptRegisters;
pub(super) use region::{Entry, Region, Thunks, replaces_return_address};
pub(super) use targets::targets;
pub(super) use value::{Bounds, Word};
