//! Trace files and directories to traces.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::Companions;
use super::formats::{self, Format};
use super::reading::{Input, Note, Reading};
use crate::error::{Error, Result};

/// All traces of `paths` in the order given. A directory stands for every trace file in it and below it, sorted by
/// name; what has no signature of a trace format is taken from a directory only if it ends in `.trace`.
///
/// Files of which nothing is usable become notes, as long as another file gives an event.
///
/// # Errors
/// Unreadable files, and paths without a single event: the first reason why.
pub fn read_files(paths: &[PathBuf], companions: &Companions) -> Result<Reading> {
    let mut whole = Reading::default();
    let mut first_error = None;
    for path in paths {
        let mut joins = None;
        let mut parts = Vec::new();
        for file in trace_files(path)? {
            let bytes = std::fs::read(&file).map_err(|error| Error::io(&file, error))?;
            match read_with(&bytes, &file, companions) {
                Ok((reading, format)) => {
                    whole.notes.extend(reading.notes);
                    match format.join {
                        Some(join) => {
                            joins = Some(join);
                            parts.extend(reading.traces);
                        }
                        None => whole.traces.extend(reading.traces),
                    }
                }
                Err(error) if first_error.is_none() => first_error = Some(error),
                Err(error) => whole.notes.push(error.into()),
            }
        }
        if let Some(join) = joins {
            whole.traces.extend(join(parts));
        }
    }
    if whole.traces.iter().any(|trace| !trace.events.is_empty()) {
        whole.notes.extend(first_error.map(Note::from));
        return Ok(whole);
    }
    Err(first_error.unwrap_or_else(|| {
        let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        let reasons: Vec<_> = whole.notes.iter().map(Note::to_string).collect();
        let error = Error::usage(
            [format!("no events in {}", names.join(", "))]
                .into_iter()
                .chain(reasons)
                .collect::<Vec<_>>()
                .join("; "),
        );
        error.with_hint(
            whole.notes.iter().find_map(|note| note.hint.clone()).unwrap_or_else(|| RECORD.to_owned()),
        )
    }))
}

/// All traces of one file's contents; `file` is for messages, labels and files beside it.
///
/// # Errors
/// Unknown formats, and files of which nothing is usable.
pub fn read_bytes(bytes: &[u8], file: &Path, companions: &Companions) -> Result<Reading> {
    read_with(bytes, file, companions).map(|(reading, _)| reading)
}

fn read_with(bytes: &[u8], file: &Path, companions: &Companions) -> Result<(Reading, &'static Format)> {
    if bytes.is_empty() {
        return Err(Error::malformed(0, "the file is empty: the program died before it wrote its profile")
            .in_file(file)
            .with_hint("let the program end by itself, or let it write the profile before it is killed"));
    }
    let format = formats::detect(bytes)
        .ok_or_else(|| Error::malformed(0, "an unknown trace format").in_file(file).with_hint(RECORD))?;
    let input = Input { bytes, path: file, companions };
    let mut reading = (format.read)(&input).map_err(|error| error.in_file(file))?;
    reading.traces.iter_mut().for_each(|trace| trace.source = Some(file.to_path_buf()));
    reading.notes.iter_mut().for_each(|note| note.file = Some(file.to_path_buf()));
    Ok((reading, format))
}

const RECORD: &str = "record a run: reorder record -o traces -- PROGRAM ARGUMENTS";

/// The trace files that `path` stands for, sorted.
fn trace_files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let mut entries: Vec<PathBuf> = std::fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .map_err(|error| Error::io(path, error))?;
    entries.sort_unstable();
    let mut files = Vec::new();
    for entry in entries {
        // A link to a directory may lead back to where it stands.
        if entry.is_dir() && !entry.is_symlink() {
            files.extend(trace_files(&entry)?);
        } else if entry.is_file() {
            let format = formats::detect(&beginning(&entry)?);
            if format.is_some_and(|format| format.is_directory) {
                return Ok(vec![entry]);
            }
            let is_named_so = entry.extension() == Some(std::ffi::OsStr::new("trace"));
            if is_named_so || format.is_some_and(|format| format.has_signature) {
                files.push(entry);
            }
        }
    }
    Ok(files)
}

/// As much of a file as detection looks at.
fn beginning(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(DETECTED_BYTES).read_to_end(&mut bytes))
        .map_err(|error| Error::io(path, error))?;
    Ok(bytes)
}

const DETECTED_BYTES: u64 = 64 << 10;
