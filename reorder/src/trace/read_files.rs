//! Trace files and directories to traces.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::detect::{TraceFormat, detect};
use super::{Trace, list, text};
use crate::error::{Error, Result};

/// All traces of `paths` in the order given; a directory stands for every `*.trace` in it, sorted by name.
///
/// # Errors
/// Unreadable files, unknown formats, malformed lines, and paths without a single event.
pub fn read_files(paths: &[PathBuf]) -> Result<Vec<Trace>> {
    let mut traces = Vec::new();
    for path in paths {
        for file in trace_files(path)? {
            let bytes = std::fs::read(&file).map_err(|error| Error::io(&file, error))?;
            traces.extend(read_bytes(&bytes, &file)?);
        }
    }
    if traces.iter().all(|trace| trace.events.is_empty()) {
        let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        return Err(Error::usage(format!("no events in {}", names.join(", "))).with_hint(RECORD));
    }
    Ok(traces)
}

/// All traces of one file's contents; `file` is for messages and labels.
///
/// # Errors
/// Unknown formats and malformed lines.
pub fn read_bytes(bytes: &[u8], file: &Path) -> Result<Vec<Trace>> {
    let traces = match detect(bytes) {
        Some(TraceFormat::Recorded) => text::read(bytes),
        Some(TraceFormat::List) => list::read(bytes).map(|trace| vec![trace]),
        None => Err(Error::malformed(0, "an unknown trace format").with_hint(RECORD)),
    };
    let mut traces = traces.map_err(|error| error.in_file(file))?;
    traces.iter_mut().for_each(|trace| trace.source = Some(file.to_path_buf()));
    Ok(traces)
}

const RECORD: &str = "record a run: reorder record -o traces -- PROGRAM ARGUMENTS";

fn trace_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let entries = std::fs::read_dir(path).map_err(|error| Error::io(path, error))?;
    let mut files = Vec::new();
    for entry in entries {
        let file = entry.map_err(|error| Error::io(path, error))?.path();
        if file.extension() == Some(OsStr::new("trace")) {
            files.push(file);
        }
    }
    files.sort_unstable();
    Ok(files)
}
