//! The `reorder` command: parse, call, exit status.

use std::process::ExitCode;

use reorder_system::exhausted_memory::ExplainingAllocator;

#[global_allocator]
static ALLOCATOR: ExplainingAllocator = ExplainingAllocator;

fn main() -> ExitCode {
    reorder_system::lost_pages::explain_lost_pages();
    reorder::cli::run(std::env::args_os()).into()
}
