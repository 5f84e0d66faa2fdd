//! The flag that names what `reorder measure --whole-process` found.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::page::MeasuredProcess;
use reorder_base::error::{Error, Result};
use reorder_system::mapped::map_image;

/// The flag.
#[derive(Args, Debug)]
pub(super) struct MeasuredInput {
    /// Also show where in the whole process page faults happen, by file and by kind: what `reorder measure --whole-process
    /// --format json` printed for IMAGE
    #[arg(long, value_name = "FILE")]
    pub(super) measured: Option<PathBuf>,
}

impl MeasuredInput {
    /// The measured processes, none without the flag; `program` must be what was run, and `new` what it was compared with, if
    /// there is one.
    ///
    /// # Errors
    /// A file that is something else, or of other programs.
    pub(super) fn processes(&self, program: &Path, new: Option<&Path>) -> Result<Vec<MeasuredProcess>> {
        let Some(file) = &self.measured else { return Ok(Vec::new()) };
        let bytes = map_image(file)?;
        let processes = MeasuredProcess::read(&bytes).map_err(|error| error.in_file(file))?;
        for process in &processes {
            let pairs = [(Some(program), Some(&process.program)), (new, process.new_program.as_ref())];
            for (wanted, measured) in pairs {
                if let (Some(wanted), Some(measured)) = (wanted, measured)
                    && !is_same(wanted, measured)
                {
                    return Err(Error::usage(format!("it has runs of {}", measured.display()))
                        .in_file(file)
                        .with_hint(format!(
                            "measure {}, or name the program that was run",
                            wanted.display()
                        )));
                }
            }
        }
        Ok(processes)
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        // Measured on another machine, or from another directory.
        _ => one.file_name() == other.file_name(),
    }
}
