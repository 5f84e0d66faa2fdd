//! Relocates the functions of a finished program so that its start touches few pages.
//!
//! The modules stand in the order of the data: a trace says which functions run first, a problem and a layout
//! come out of `layout-algos`, the image is rewritten or an order file is written, and the result is verified,
//! simulated and measured. `ARCHITECTURE.md` draws the pipeline.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

pub mod cli;
pub mod exit_status;
pub mod explain;
pub mod gate;
pub mod optimize_report;
pub mod packages;
pub mod page;
pub mod schema;
pub mod wheel;
