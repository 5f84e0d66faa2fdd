//! Relocates the functions of a finished program so that its start touches few pages.
//!
//! The modules stand in the order of the data: a trace says which functions run first, a problem and a layout
//! come out of `layout-algos`, the image is rewritten or an order file is written, and the result is verified,
//! simulated and measured. `ARCHITECTURE.md` draws the pipeline.

pub mod address;
mod address_index;
mod arch;
pub mod error;
pub mod exit_status;

pub mod image;
pub mod relocate;

pub mod apply;

pub mod trace;

mod processor;
pub mod record;
mod runnable;
mod start_directory;
mod start_failure;
mod stops;

pub mod link_map;
pub mod loaded_libraries;
pub mod lost_pages;

pub mod configuration;

pub mod opened;

pub mod scenario;

pub mod layout;

pub mod order_file;

pub mod schema;
pub mod simulate;

pub mod verify;

pub mod wheel;

pub mod write;

pub mod measure;
pub(crate) mod memory;

pub mod gate;

pub mod explain;

pub mod report;

pub mod packages;
pub mod page;

pub mod cli;
