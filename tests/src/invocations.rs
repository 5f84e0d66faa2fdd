//! Lists of invocations of real programs, and the comparison of a program before and after relocation.
//!
//! A list is a file of `tests/programs`: `program PATH`, then `setup LINE` (run once by the shell), `train ARGUMENTS`
//! (a typical invocation), `run LINE` (compared). In every line `$PROGRAM` is the program. The answers of
//! the original must be the same each time, or the comparison would blame the permutation for other influences.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use crate::process::{self, Outcome};
use crate::stage::Stage;

const LIMIT: Duration = Duration::from_secs(60);

/// One list.
#[derive(Clone, Debug, Default)]
pub struct Invocations {
    /// The installed program.
    pub program: PathBuf,
    /// Shell lines that prepare the working directory.
    pub setup: Vec<String>,
    /// Arguments to record.
    pub training: Vec<String>,
    /// Shell lines to compare.
    pub runs: Vec<String>,
}

impl Invocations {
    /// Reads a list.
    ///
    /// # Errors
    /// The file cannot be read or has a line of unknown form.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut list = Self::default();
        for line in fs::read_to_string(path)?.lines() {
            match line.split_once(' ') {
                Some(("program", value)) => list.program = PathBuf::from(value),
                Some(("setup", value)) => list.setup.push(value.to_owned()),
                Some(("train", value)) => list.training.push(value.to_owned()),
                Some(("run", value)) => list.runs.push(value.to_owned()),
                _ => {
                    let message = format!("{}: not understood: {line}", path.display());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, message));
                }
            }
        }
        Ok(list)
    }

    /// All lists of `directory`, by name of the program.
    ///
    /// # Errors
    /// As [`Invocations::read`].
    pub fn read_all(directory: &Path) -> io::Result<Vec<Self>> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        paths.sort();
        paths.iter().map(|path| Self::read(path)).collect()
    }

    /// Runs the lines that prepare the working directory of `stage`.
    ///
    /// # Errors
    /// A line fails.
    pub fn prepare(&self, stage: &Stage) -> Result<(), String> {
        for line in &self.setup {
            let outcome = shell(stage, line)?;
            if !outcome.success() {
                return Err(format!("{line}: {outcome}"));
            }
        }
        Ok(())
    }

    /// What the program at the path of `stage` answers to every line.
    ///
    /// # Errors
    /// The shell cannot be started.
    pub fn answers(&self, stage: &Stage) -> Result<Vec<Outcome>, String> {
        self.runs.iter().map(|line| shell(stage, line)).collect()
    }

    /// Compares the original with the program `permuted` in `stage`, which is prepared.
    ///
    /// # Errors
    /// The first line that differs, with both answers; or a line to which the original answers differently twice.
    pub fn compare(&self, stage: &Stage, permuted: &Path) -> Result<(), String> {
        stage.play_original().map_err(|error| error.to_string())?;
        let before = self.answers(stage)?;
        let again = self.answers(stage)?;
        stage.play(permuted).map_err(|error| error.to_string())?;
        let after = self.answers(stage)?;
        for (((line, before), again), after) in self.runs.iter().zip(&before).zip(&again).zip(&after) {
            if before != again {
                return Err(format!("the original varies by itself: {line}\nfirst: {before}second: {again}"));
            }
            if before != after {
                return Err(format!("{line}\nbefore: {before}after: {after}"));
            }
        }
        Ok(())
    }
}

fn shell(stage: &Stage, line: &str) -> Result<Outcome, String> {
    let mut command = Command::new("/usr/bin/bash");
    stage.set(&mut command);
    process::run(command.args(["-c", line]), LIMIT).map_err(|error| format!("{line}: {error}"))
}
