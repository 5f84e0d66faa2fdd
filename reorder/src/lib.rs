//! Moves the functions of a finished program so that its startup touches fewer pages.
//!
//! This crate is the command, and what only the command needs: the gate, the page of `report`, `explain` and wheels. The
//! pipeline itself is in the crates beside it; `ARCHITECTURE.md` draws it.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

pub mod cli;
pub(crate) mod exit_status;
pub mod explain;
pub mod gate;
pub mod hints;
mod names;
pub(crate) mod optimize_memories;
pub(crate) mod optimize_report;
pub(crate) mod optimize_set_report;
pub mod packages;
pub mod page;
pub mod remarks;
pub mod schema;
pub mod sizes;
pub mod warnings;
pub mod wheel;
