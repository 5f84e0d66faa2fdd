//! Trace files and directories to traces.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::formats::{self, Format};
use super::reading::{Input, Note, Reading};
use super::{Companions, Trace};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

/// The trace files that some paths stand for.
#[derive(Clone, Debug)]
pub struct TraceFiles {
    /// By path given; what one path stands for may be parts of one run.
    groups: Vec<Vec<PathBuf>>,
}

/// Files read before their traces are passed on: bounds memory whatever the number of files.
const FILES_AT_A_TIME: usize = 64;

impl TraceFiles {
    /// Finds the files. A directory stands for every trace file in it and below it, sorted by name; what has no
    /// signature of a trace format is taken from a directory only if it ends in `.trace`. `-` is standard input.
    /// `@FILE` stands for the paths in `FILE`, one per line, unless something is called so.
    ///
    /// # Errors
    /// Unreadable directories and lists of paths.
    pub fn find(paths: &[PathBuf]) -> Result<Self> {
        let mut groups = Vec::new();
        for path in paths {
            match listed_paths(path)? {
                Some(listed) => {
                    groups.extend(listed.iter().map(|path| trace_files(path)).collect::<Result<Vec<_>>>()?)
                }
                None => groups.push(trace_files(path)?),
            }
        }
        Ok(Self { groups })
    }

    /// All files, in the order in which they are read.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.groups.iter().flatten().map(PathBuf::as_path)
    }

    /// Gives each trace to `work`, several files at a time, and what comes out to `sink`, in the order of files and
    /// traces.
    ///
    /// Unusable files become notes, as long as another file gives an event.
    ///
    /// # Errors
    /// Unreadable files, and files without a single event: the first reason why.
    pub fn read<Worked: Send>(
        &self,
        companions: &Companions,
        work: impl Fn(Trace) -> Worked + Sync,
        mut sink: impl FnMut(Worked),
    ) -> Result<Vec<Note>> {
        let mut notes = Vec::new();
        let mut first_error = None;
        let mut has_events = false;
        for group in &self.groups {
            let mut joined = None;
            for files in group.chunks(FILES_AT_A_TIME) {
                let read: Vec<_> =
                    files.par_iter().map(|file| FileContents::read(file, companions, &work)).collect();
                for contents in read {
                    let contents = match contents? {
                        Ok(contents) => contents,
                        Err(error) if first_error.is_none() => {
                            first_error = Some(error);
                            continue;
                        }
                        Err(error) => {
                            notes.push(error.into());
                            continue;
                        }
                    };
                    notes.extend(contents.notes);
                    has_events |= contents.has_events;
                    contents.worked.into_iter().for_each(&mut sink);
                    if let Some((join, part)) = contents.part {
                        joined.get_or_insert((join, Vec::new())).1.push(part);
                    }
                }
            }
            if let Some((join, parts)) = joined {
                let reading = join(parts);
                notes.extend(reading.notes);
                positioned(reading.traces).for_each(|trace| sink(work(trace)));
            }
        }
        if has_events {
            notes.extend(first_error.map(Note::from));
            return Ok(notes);
        }
        Err(first_error.unwrap_or_else(|| self.no_events(&notes)))
    }

    fn no_events(&self, notes: &[Note]) -> Error {
        let files: Vec<_> = self.groups.iter().flatten().map(|file| file.display().to_string()).collect();
        let mut message = match &files[..] {
            [] => {
                let hint = "name the files themselves: a directory stands for the files in it whose contents leave no \
                            doubt that they are traces, and for those that end in .trace";
                return Error::usage("the directories that are given hold no trace files").with_hint(hint);
            }
            [file] => format!("no events in {file}"),
            [first, ..] => format!("no events in {} files, such as {first}", files.len()),
        };
        if let Some(note) = notes.first() {
            message.push_str(&format!("; {note}"));
        }
        let hint = notes.iter().find_map(|note| note.hint.clone()).unwrap_or_else(record);
        Error::usage(message).with_hint(hint)
    }
}

type Join = fn(Vec<Reading>) -> Reading;

/// What one file gave.
struct FileContents<Worked> {
    notes: Vec<Note>,
    has_events: bool,
    worked: Vec<Worked>,
    /// What is whole only together with other files.
    part: Option<(Join, Reading)>,
}

impl<Worked> FileContents<Worked> {
    /// The outer error is the system's, the inner one the file's own.
    fn read(file: &Path, companions: &Companions, work: &impl Fn(Trace) -> Worked) -> Result<Result<Self>> {
        let bytes = contents_of(file)?;
        let (reading, format) = match read_with(&bytes, file, companions) {
            Ok(read) => read,
            Err(error) => return Ok(Err(error)),
        };
        let has_events = reading.traces.iter().any(|trace| !trace.events.is_empty());
        if let Some(join) = format.join {
            let part = Some((join, reading));
            return Ok(Ok(Self { notes: Vec::new(), has_events, worked: Vec::new(), part }));
        }
        let worked = positioned(reading.traces).map(work).collect();
        Ok(Ok(Self { notes: reading.notes, has_events, worked, part: None }))
    }
}

fn positioned(traces: Vec<Trace>) -> impl Iterator<Item = Trace> {
    traces.into_iter().zip(0..).map(|(trace, position)| Trace { position, ..trace })
}

fn contents_of(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes),
        false => std::fs::read(file),
    };
    read.map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::io(file, error).with_hint(record()),
        _ => Error::io(file, error),
    })
}

/// All traces of `paths` in the order given, as [`TraceFiles`] finds and reads them.
///
/// # Errors
/// As [`TraceFiles::read`].
pub fn read_files(paths: &[PathBuf], companions: &Companions) -> Result<Reading> {
    let mut traces = Vec::new();
    let notes = TraceFiles::find(paths)?.read(companions, |trace| trace, |trace| traces.push(trace))?;
    Ok(Reading { traces, notes })
}

/// All traces of one file's contents; `file` is for messages, labels and files beside it.
///
/// # Errors
/// Unknown formats, and unusable files.
pub fn read_bytes(bytes: &[u8], file: &Path, companions: &Companions) -> Result<Reading> {
    read_with(bytes, file, companions).map(|(reading, _)| reading)
}

fn read_with(bytes: &[u8], file: &Path, companions: &Companions) -> Result<(Reading, &'static Format)> {
    if bytes.is_empty() {
        return Err(Error::malformed(0, "the file is empty: the program died before it wrote its profile")
            .in_file(file)
            .with_hint("let the program end by itself, or let it write the profile before it is killed"));
    }
    let format = formats::detect(bytes).ok_or_else(|| {
        Error::malformed(0, "an unknown trace format").in_file(file).with_hint(instead_of(bytes))
    })?;
    let input = Input { bytes, path: file, companions };
    let mut reading = (format.read)(&input).map_err(|error| error.in_file(file))?;
    reading.traces.iter_mut().for_each(|trace| trace.source = Some(file.to_path_buf()));
    reading.notes.iter_mut().for_each(|note| note.file = Some(file.to_path_buf()));
    Ok((reading, format))
}

fn record() -> Hint {
    Hint::Record { what: "a run", otherwise: None }
}

/// Advice for a file that is not a trace.
fn instead_of(bytes: &[u8]) -> Hint {
    const PACKED: [&[u8]; 5] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh", b"PK\x03\x04"];
    const IMAGES: [&[u8]; 5] =
        [b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"MZ"];
    let is_one_of = |signatures: &[&[u8]]| signatures.iter().any(|signature| bytes.starts_with(signature));
    if is_one_of(&PACKED) {
        "the file is compressed: unpack it and give what comes out".into()
    } else if is_one_of(&IMAGES) {
        Hint::companion(
            "this is a program, not a recording: give what it wrote when it ran, and the program if that needs it",
            "PROGRAM",
        )
    } else {
        record()
    }
}

/// The paths in `FILE` when `path` is `@FILE`, as compilers take their arguments from a file. A list in a list is a
/// path like any other, so no list can name itself.
fn listed_paths(path: &Path) -> Result<Option<Vec<PathBuf>>> {
    use std::os::unix::ffi::OsStrExt as _;
    let Some(list) = path.as_os_str().as_bytes().strip_prefix(b"@").filter(|_| !path.exists()) else {
        return Ok(None);
    };
    let list = Path::new(std::ffi::OsStr::from_bytes(list));
    let text = std::fs::read(list).map_err(|error| Error::io(list, error))?;
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let paths = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    Ok(Some(paths.map(|line| PathBuf::from(std::ffi::OsStr::from_bytes(line))).collect()))
}

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
    // Of a format that is a directory: which other files are read together with the accepted one.
    let mut whole = Vec::new();
    let mut parts: Vec<fn(&Path) -> bool> = Vec::new();
    for entry in entries {
        // A link to a directory may lead back to its own directory.
        if entry.is_dir() && !entry.is_symlink() {
            files.extend(trace_files(&entry)?);
        } else if entry.is_file() {
            let format = formats::detect(&beginning(&entry)?);
            if let Some(is_part) = format.and_then(|format| format.is_part) {
                parts.push(is_part);
                whole.push(entry);
                continue;
            }
            let is_named_so = entry.extension() == Some(std::ffi::OsStr::new("trace"));
            if is_named_so || format.is_some_and(|format| format.has_signature) {
                files.push(entry);
            }
        }
    }
    files.retain(|file| file.parent() != Some(path) || !parts.iter().any(|is_part| is_part(file)));
    files.append(&mut whole);
    files.sort_unstable();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_that_is_a_directory_leaves_other_traces_alone() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("below")).unwrap();
        std::fs::write(at("info"), b"Ftrace!\0").unwrap();
        // Each looks like a trace by its contents.
        let others = ["below/1.dat", "other.dat", "zero.callgrind"];
        for name in ["1.dat", "sid-5.map", "demo.sym", "task.txt"].iter().chain(&others) {
            std::fs::write(at(name), "# callgrind format\nversion: 1\n").unwrap();
        }
        let found = trace_files(directory.path()).unwrap();
        assert_eq!(found, ["below/1.dat", "info", "other.dat", "zero.callgrind"].map(at));
    }
}
