//! The `reorder-ld` command: stands in for a linker.

use std::process::ExitCode;

fn main() -> ExitCode {
    reorder_plugin::wrapper::run(std::env::args_os())
}
