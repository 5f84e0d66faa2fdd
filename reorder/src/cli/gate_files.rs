//! The files of one run of `reorder gate`, and a check that none of them overwrites another.
//!
//! In: what is read and what will be written, by path. Out: nothing, or an error that names the two that are one file.

use std::fmt;
use std::path::PathBuf;

use crate::cli::kept_inputs::KeptFiles;
use reorder_base::error::Result;

/// What a file is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileRole {
    /// It is judged.
    Image,
    /// Its limits apply.
    Configuration,
    /// A trace is read from it.
    Trace,
    /// Its lines are looked for.
    Order,
    /// It is measured for comparison.
    Old,
    /// The image is compared with it.
    Baseline,
    /// The image is compared with it, and it is written again.
    UpdatedBaseline,
    /// A form of the report is written to it.
    Export,
    /// The runner's summary file, which is appended to.
    Summary,
}

impl FileRole {
    /// Whether its contents are replaced.
    #[must_use]
    pub(crate) fn is_replaced(self) -> bool {
        matches!(self, Self::Export | Self::UpdatedBaseline)
    }

    /// What the written file is called in messages.
    fn written_as(self) -> &'static str {
        match self {
            Self::UpdatedBaseline => "new baseline",
            Self::Summary => "summary of the job",
            _ => "export",
        }
    }

    fn is_written(self) -> bool {
        self.is_replaced() || self == Self::Summary
    }
}

impl fmt::Display for FileRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Image => "the image",
            Self::Configuration => "the configuration",
            Self::Trace => "a trace",
            Self::Order => "the order file",
            Self::Old => "the program to compare with",
            Self::Baseline | Self::UpdatedBaseline => "the baseline",
            Self::Export => "an export",
            Self::Summary => "the summary of the job",
        })
    }
}

/// Refuses two roles of one file when one of them writes it.
///
/// # Errors
/// Usage, with the path that would be overwritten and what it is.
pub(crate) fn refuse_overwriting(files: &[(FileRole, PathBuf)]) -> Result<()> {
    let (written, read): (Vec<_>, Vec<_>) = files.iter().partition(|(role, _)| role.is_written());
    let known = read.iter().fold(KeptFiles::default(), |known, (role, path)| known.reads(role, [path]));
    let hint = "give each output a file of its own: --export FORM=FILE, --baseline FILE";
    // The baseline is both read and written in this run: no other output may replace it.
    let (baselines, others): (Vec<_>, Vec<_>) =
        written.into_iter().partition(|(role, _)| *role == FileRole::UpdatedBaseline);
    let known = baselines
        .into_iter()
        .try_fold(known, |known, (role, path)| known.replaces(role.written_as(), role, path, hint))?;
    others.into_iter().try_fold(known, |known, (role, path)| known.writes(role.written_as(), path, hint))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn only_what_writes_destroys() {
        let directory = tempfile::tempdir().unwrap();
        let one = directory.path().join("one");
        std::fs::write(&one, "").unwrap();
        let refused =
            |roles: [FileRole; 2]| refuse_overwriting(&roles.map(|role| (role, one.clone()))).is_err();
        for roles in [
            [FileRole::Image, FileRole::Export],
            [FileRole::UpdatedBaseline, FileRole::Order],
            [FileRole::Summary, FileRole::Trace],
            [FileRole::Export, FileRole::UpdatedBaseline],
            [FileRole::Export, FileRole::Export],
        ] {
            assert!(refused(roles), "{roles:?}");
        }
        for roles in [[FileRole::Trace, FileRole::Order], [FileRole::Image, FileRole::Baseline]] {
            assert!(!refused(roles), "{roles:?}");
        }
    }
}
