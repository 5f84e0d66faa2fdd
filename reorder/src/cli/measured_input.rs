//! The flag that names what `reorder measure --whole-process` found.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::page::MeasuredProcess;
use reorder_base::error::{Error, Result};

/// The flag.
#[derive(Args, Debug)]
pub(super) struct MeasuredInput {
    /// Also show where in the whole process page faults happen, by file and by kind: what `reorder measure --whole-process
    /// --format json` printed for IMAGE
    #[arg(long, value_name = "FILE")]
    pub(super) measured: Option<PathBuf>,
}

impl MeasuredInput {
    /// The measured processes, none without the flag; `program` must be what was run.
    ///
    /// # Errors
    /// A file that is something else, or of another program.
    pub(super) fn processes(&self, program: &Path) -> Result<Vec<MeasuredProcess>> {
        let Some(file) = &self.measured else { return Ok(Vec::new()) };
        let processes = std::fs::read(file)
            .map_err(|error| Error::io(file, error))
            .and_then(|bytes| MeasuredProcess::read(&bytes).map_err(|error| error.in_file(file)))?;
        let same = |other: &Path| match (program.canonicalize(), other.canonicalize()) {
            (Ok(program), Ok(other)) => program == other,
            // Measured on another machine, or from another directory.
            _ => program.file_name() == other.file_name(),
        };
        match processes.iter().find(|process| !same(&process.program)) {
            None => Ok(processes),
            Some(other) => Err(Error::usage(format!("it has runs of {}", other.program.display()))
                .in_file(file)
                .with_hint(format!("measure {}, or name the program that was run", program.display()))),
        }
    }
}
