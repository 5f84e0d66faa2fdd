//! Runs of the programs that copies are made of.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use end_to_end::process::{self, Outcome};

/// More than any of these programs and commands takes on a busy system.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

pub(crate) fn run(command: &mut Command) -> Outcome {
    process::run(command, LIMIT).unwrap()
}

/// What the program does before it has copies.
pub(crate) fn original(program: &Path) -> Outcome {
    let before = run(&mut Command::new(program));
    assert!(before.success(), "{before}");
    before
}
