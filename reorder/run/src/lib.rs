//! Programs that run: recorded, measured, and compared with each other.
//!
//! `record` notes which functions ran first, `measure` counts what the kernel did for a run, and `check` compares the runs
//! of an original and its result. The rest is what they share: the processor below ptrace (`arch`), why traced tasks stop
//! (`stops`), and which programs cannot be run here.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

pub mod check;
pub mod loaded_libraries;
pub mod measure;
pub mod processor;
pub mod record;
pub mod runnable;
mod start_directory;
pub mod start_failure;
pub mod stop_rule;
