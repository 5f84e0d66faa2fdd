//! The exit status of the process.

use std::process::ExitCode;

/// The three outcomes every command has, and a fourth for commands that run a program on its user's behalf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Fine: 0.
    Success,
    /// The command ran and has a finding, such as two images that differ: 1.
    Finding,
    /// The command could not run (usage, files), or the image is refused: 2, of whatever command.
    Error,
    /// The status of the program that was run, or 128 plus its signal.
    Program(u8),
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Success => Self::SUCCESS,
            ExitStatus::Finding => Self::from(1),
            ExitStatus::Error => Self::from(2),
            ExitStatus::Program(status) => Self::from(status),
        }
    }
}
