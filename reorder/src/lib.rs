//! Relocates the functions of a finished program so that its start touches few pages.
//!
//! The modules stand in the order of the data: a trace says which functions run first, a problem and a layout
//! come out of `layout-algos`, the image is rewritten or an order file is written, and the result is verified,
//! simulated and measured. `ARCHITECTURE.md` draws the pipeline.

pub mod address;
mod address_index;
pub mod error;
pub mod exit_status;
mod lines;
pub(crate) mod memory;

// An image, and what may happen in it.
pub mod image;
pub mod lost_pages;
pub mod opened;

// A program that runs, and what it executed.
mod arch;
pub mod loaded_libraries;
mod processor;
pub mod record;
mod runnable;
mod start_directory;
mod start_failure;
mod stops;
pub mod trace;

// What is asked for.
pub mod configuration;
pub mod scenario;

// From traces to an order, and to the linker.
pub mod layout;
pub mod link_map;
pub mod order_file;

// From an order to another image, and its proof.
pub mod apply;
pub mod relocate;
pub mod verify;
pub mod wheel;

// To the disk.
pub mod packages;
pub mod write;

// What it brought.
pub mod check;
pub mod explain;
pub mod gate;
pub mod measure;
pub mod page;
pub mod simulate;

// To the user.
pub mod cli;
pub mod report;
pub mod schema;
