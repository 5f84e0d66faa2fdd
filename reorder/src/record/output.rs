//! Recorded traces to files.

use std::fs;
use std::path::{Path, PathBuf};

use super::RecordedTrace;
use crate::error::{Error, Result};
use crate::trace::text;
use crate::write;

/// The number of the first run that has no trace in `directory` yet, so that recordings accumulate.
///
/// # Errors
/// When the directory exists and cannot be read.
pub fn next_run(directory: &Path) -> Result<u32> {
    let io = |error| Error::io(directory, error);
    if !directory.exists() {
        return Ok(1);
    }
    let mut last = 0;
    for entry in fs::read_dir(directory).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        last = last.max(run_of(&name.to_string_lossy()).unwrap_or(0));
    }
    Ok(last.saturating_add(1))
}

/// The run of `NAME.RUN.PROGRAM.trace`.
fn run_of(name: &str) -> Option<u32> {
    name.strip_suffix(".trace")?.rsplit('.').nth(1)?.parse().ok()
}

/// Writes each trace as `NAME.RUN.PROGRAM.trace` into `directory`, which is made if need be; gives the paths.
///
/// # Errors
/// When the system refuses.
pub fn write_traces(directory: &Path, traces: &[RecordedTrace]) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(directory).map_err(|error| Error::io(directory, error))?;
    traces
        .iter()
        .map(|recorded| {
            let run = recorded.trace.run;
            let path =
                directory.join(format!("{}.{run:03}.{:03}.trace", recorded.image_name, recorded.program));
            write::whole(&path, text::write(&recorded.trace).as_bytes())?;
            Ok(path)
        })
        .collect()
}
