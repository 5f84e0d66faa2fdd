//! Recorded traces to files.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::RecordedTrace;
use reorder_base::error::{Error, Result};
use reorder_system::write;
use reorder_trace::text;

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

/// A directory that traces will be written into.
#[derive(Debug)]
pub struct TraceDirectory {
    /// Made here, and removed again if no file is written.
    made: Option<PathBuf>,
}

impl TraceDirectory {
    /// Makes `path` if need be and proves that files can be written there: a program may run for long, or not twice,
    /// before its traces are written.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn prepare(path: &Path) -> Result<Self> {
        let refused = |error| {
            Error::io(path, error).with_hint("the traces need a directory that this user may write into")
        };
        let made = (!path.exists()).then(|| path.to_path_buf());
        fs::create_dir_all(path).map_err(refused)?;
        let directory = Self { made };
        tempfile::Builder::new().prefix(".reorder-record-").tempfile_in(path).map_err(refused)?;
        Ok(directory)
    }
}

impl Drop for TraceDirectory {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // Fails when it is not empty.
            let _ = fs::remove_dir(path);
        }
    }
}

/// Writes `traces` into `directory` in place of earlier recordings; see [`remove_recordings`]. The old ones stay until the
/// new ones are complete.
///
/// # Errors
/// When the system refuses.
pub fn replace_recordings(directory: &Path, traces: &[RecordedTrace]) -> Result<()> {
    fs::create_dir_all(directory).map_err(|error| Error::io(directory, error))?;
    let beside = tempfile::Builder::new().prefix(".reorder-record-").tempdir_in(directory);
    let beside = beside.map_err(|error| Error::io(directory, error))?;
    let written = write_traces(beside.path(), traces)?;
    remove_recordings(directory)?;
    for path in written {
        let place = directory.join(path.file_name().unwrap_or_default());
        fs::rename(&path, &place).map_err(|error| Error::io(&place, error))?;
    }
    Ok(())
}

/// Removes what [`write_traces`] wrote into `directory` before, of any build: files called `NAME.RUN.PROGRAM.trace` that
/// begin like a trace. All other files stay.
///
/// # Errors
/// When the directory exists and cannot be read, or a file cannot be removed.
fn remove_recordings(directory: &Path) -> Result<()> {
    let io = |error| Error::io(directory, error);
    if !directory.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(directory).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let is_named_so = path.file_name().is_some_and(|name| run_of(&name.to_string_lossy()).is_some());
        if is_named_so && path.is_file() && begins_like_trace(&path)? {
            fs::remove_file(&path).map_err(|error| Error::io(&path, error))?;
        }
    }
    Ok(())
}

fn begins_like_trace(path: &Path) -> Result<bool> {
    let mut beginning = Vec::new();
    let file = fs::File::open(path).map_err(|error| Error::io(path, error))?;
    file.take(text::FIRST_WORDS.len() as u64)
        .read_to_end(&mut beginning)
        .map_err(|error| Error::io(path, error))?;
    Ok(beginning == text::FIRST_WORDS.as_bytes())
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
