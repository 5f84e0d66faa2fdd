//! `reorder-ld`: stands in for a linker.

pub mod environment;
pub mod linker_family;
pub mod linker_names;
pub mod real_linker;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the linker that is stood in for.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let _ = arguments.into_iter();
    ExitCode::FAILURE
}
