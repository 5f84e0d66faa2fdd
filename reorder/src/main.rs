//! The `reorder` command: parse, call, exit status.

use std::process::ExitCode;

fn main() -> ExitCode {
    reorder_system::lost_pages::explain_lost_pages();
    reorder::cli::run(std::env::args_os()).into()
}
