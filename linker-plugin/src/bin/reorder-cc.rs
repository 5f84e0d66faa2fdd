//! The `reorder-cc` command: stands in for a compiler that links, for builds that call one instead of a linker.

use std::process::ExitCode;

fn main() -> ExitCode {
    reorder_plugin::wrapper::run(std::env::args_os())
}
