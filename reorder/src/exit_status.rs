//! What the process tells its caller.

use std::process::ExitCode;

/// The three outcomes every command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Fine: 0.
    Success,
    /// The command ran and has a finding, such as two images that differ: 1.
    Finding,
    /// The command could not run (usage, files, an image that is refused): 2.
    Error,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Success => Self::SUCCESS,
            ExitStatus::Finding => Self::from(1),
            ExitStatus::Error => Self::from(2),
        }
    }
}
