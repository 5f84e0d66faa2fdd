//! The place where a link happens before its result gets its name.
//!
//! A directory next to the output, so that the finished file only has to be renamed: a process that opens the output sees
//! either the old contents or the new ones. The directory is removed when its value is dropped; what a killed process
//! left is removed by the next link of the same output.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use reorder_base::error::{Error, Result};

/// At most this many processes with the same number share a folder.
const MAX_ATTEMPTS: u32 = 100;

/// A directory next to an output.
#[derive(Debug)]
pub(crate) struct Workplace {
    directory: PathBuf,
    output: PathBuf,
    /// Held as long as the place is in use; the kernel frees it when this process ends in any way. `None` where the
    /// file system has no locks: then no process removes the place either.
    _lock: Option<Flock<File>>,
}

impl Workplace {
    /// Makes a place for links of `output`.
    ///
    /// # Errors
    /// When the output's directory cannot be written.
    pub(crate) fn beside(output: &Path) -> Result<Self> {
        let start = start_of_name(output);
        let folder =
            output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        remove_abandoned(folder, &start);
        let mut directory = PathBuf::new();
        for attempt in 0..MAX_ATTEMPTS {
            let mut name = start.clone();
            name.push(format!("{}-{attempt}", std::process::id()));
            directory = folder.join(name);
            match std::fs::create_dir(&directory) {
                Ok(()) => {}
                // A process in another namespace has the same number.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(Error::io(&directory, error)),
            }
            // Until the lock is taken, others may take the place for an abandoned one.
            match locked(&directory) {
                Ok(lock) if is_at(&lock, &directory) => {
                    return Ok(Self { directory, output: output.to_path_buf(), _lock: Some(lock) });
                }
                Err(errno) if errno != Errno::EWOULDBLOCK && errno != Errno::ENOENT => {
                    return Ok(Self { directory, output: output.to_path_buf(), _lock: None });
                }
                _ => {}
            }
        }
        let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
        Err(Error::io(&directory, error))
    }

    /// Where a link is made that becomes the output: under its name, which some linkers write into it.
    #[must_use]
    pub(crate) fn output(&self) -> PathBuf {
        self.directory.join(self.output.file_name().unwrap_or(OsStr::new("output")))
    }

    /// A file for another purpose, named by `role`.
    #[must_use]
    pub(crate) fn file(&self, role: &str) -> PathBuf {
        self.directory.join(format!("reorder.{role}"))
    }

    /// Removes the file with the output's name, as linkers do when they begin. Freeing a large file takes as long as much
    /// of a link: while it is open only its name is removed, and the rest is freed later, in parallel.
    pub(crate) fn remove_old_output(&self) {
        let held = std::fs::File::open(&self.output);
        let _ = std::fs::remove_file(&self.output);
        std::thread::spawn(move || drop(held));
    }

    /// `text` with this place's path of the output as the user has it.
    #[must_use]
    pub(crate) fn spelled(&self, text: &[u8], output: &Path) -> Vec<u8> {
        let spelled = replaced(text, self.output().as_os_str().as_bytes(), output.as_os_str().as_bytes());
        let trial = self.file("trial");
        replaced(&spelled, trial.as_os_str().as_bytes(), output.as_os_str().as_bytes())
    }

    /// Gives the file at [`Self::output`] its final name.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn deliver(&self) -> Result<()> {
        std::fs::rename(self.output(), &self.output).map_err(|error| Error::io(&self.output, error))
    }

    /// Corrects a file that a linker wrote about its output: the output is called `spelled`, and all other mentions of
    /// this place are removed.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn correct(&self, file: &Path, spelled: &Path) -> Result<()> {
        let Ok(text) = std::fs::read(file) else { return Ok(()) };
        let output = self.output();
        let (output, spelled) = (output.as_os_str().as_bytes(), spelled.as_os_str().as_bytes());
        let directory = self.directory.as_os_str().as_bytes();
        let mut corrected = replaced(&text, &escaped(output), &escaped(spelled));
        corrected = replaced(&corrected, output, spelled);
        corrected = without_words(&corrected, &escaped(directory));
        corrected = without_words(&corrected, directory);
        if corrected != text {
            std::fs::write(file, corrected).map_err(|error| Error::io(file, error))?;
        }
        Ok(())
    }
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // What is left here is removed by the next link.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The lock of a place, unless another process has it.
fn locked(directory: &Path) -> std::result::Result<Flock<File>, Errno> {
    let opened = File::open(directory).map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(0)))?;
    Flock::lock(opened, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)
}

/// Whether the locked directory is the one at `directory`.
fn is_at(lock: &Flock<File>, directory: &Path) -> bool {
    let facts = |facts: std::fs::Metadata| (facts.dev(), facts.ino());
    let there = std::fs::symlink_metadata(directory).ok().map(facts);
    there.is_some() && there == lock.metadata().ok().map(facts)
}

/// A path as lld, gcc and clang write it for make and ninja; GNU ld, gold and mold write it as it is.
fn escaped(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len());
    for (position, &byte) in path.iter().enumerate() {
        match byte {
            b'#' => text.push(b'\\'),
            b'$' => text.push(b'$'),
            b' ' => {
                let backslashes = path[..position].iter().rev().take_while(|&&byte| byte == b'\\').count();
                text.extend(std::iter::repeat_n(b'\\', backslashes + 1));
            }
            _ => {}
        }
        text.push(byte);
    }
    text
}

/// `.NAME.reorder-`; a process number follows.
fn start_of_name(output: &Path) -> OsString {
    let mut start = OsString::from(".");
    start.push(output.file_name().unwrap_or(OsStr::new("output")));
    start.push(".reorder-");
    start
}

/// Removes places that no process has locked: their processes are gone. Process numbers are no evidence, because those of
/// other containers with the same folder have no meaning here.
fn remove_abandoned(folder: &Path, start: &OsStr) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_number = |rest: &[u8]| rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-');
        let is_place = name.as_bytes().strip_prefix(start.as_bytes()).is_some_and(is_number);
        // A link in its place would lead to something that is not ours.
        if !is_place || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if let Ok(_lock) = locked(&entry.path()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn replaced(text: &[u8], wrong: &[u8], right: &[u8]) -> Vec<u8> {
    let mut corrected = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(position) = position_of(rest, wrong) {
        corrected.extend_from_slice(&rest[..position]);
        corrected.extend_from_slice(right);
        rest = &rest[position + wrong.len()..];
    }
    corrected.extend_from_slice(rest);
    corrected
}

/// `text` without words that start with `start`. A line without other words, as in rules for make, is removed.
fn without_words(text: &[u8], start: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let mut rest = line.to_vec();
        while let Some(position) = position_of(&rest, start) {
            // Only `start` can hold blanks: what we append to it has none, except a name that was replaced before.
            let after = position + start.len();
            let length =
                rest[after..].iter().take_while(|byte| !byte.is_ascii_whitespace() && **byte != 0).count();
            let mut end = after + length;
            let before = position.checked_sub(1).map(|before| rest[before]);
            // With the blank before it; or, in Apple's form, with the kind before it and the NUL after it.
            let mut first = position - usize::from(before == Some(b' '));
            if rest.get(end) == Some(&0) {
                first = position.saturating_sub(1);
                end += 1;
            }
            rest.drain(first..end);
        }
        let is_empty = || rest.iter().all(|byte| byte.is_ascii_whitespace() || *byte == b'\\');
        if rest.len() == line.len() || !is_empty() {
            kept.extend_from_slice(&rest);
        }
    }
    kept
}

fn position_of(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len().max(1)).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_appears_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join("program");
        std::fs::write(&output, "old").unwrap();
        // No process has such a number.
        let abandoned = directory.path().join(".program.reorder-2147483647");
        std::fs::create_dir(&abandoned).unwrap();
        let other = directory.path().join(".other.reorder-2147483647");
        std::fs::create_dir(&other).unwrap();
        {
            let place = Workplace::beside(&output).unwrap();
            assert!(!abandoned.exists() && other.exists());
            std::fs::write(place.output(), "new").unwrap();
            assert_eq!(std::fs::read(&output).unwrap(), b"old");
            let about = place.file("dependencies");
            let (linked, order) = (place.output(), place.file("order"));
            let (linked, order) = (linked.display(), order.display());
            let text = format!("{linked}: \\\n {order} \\\n a.o\n\n{order}:\n\nb: {order} {order} c\n");
            std::fs::write(&about, text).unwrap();
            place.correct(&about, Path::new("program")).unwrap();
            assert_eq!(std::fs::read_to_string(&about).unwrap(), "program: \\\n a.o\n\n\nb: c\n");
            place.deliver().unwrap();
        }
        assert_eq!(std::fs::read(&output).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }

    #[test]
    fn places_in_use_stay_whatever_their_number() {
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join("program");
        let used = directory.path().join(".program.reorder-2147483647");
        std::fs::create_dir(&used).unwrap();
        let lock = locked(&used).unwrap();
        let first = Workplace::beside(&output).unwrap();
        let second = Workplace::beside(&output).unwrap();
        assert!(used.exists() && first.directory.exists() && first.directory != second.directory);
        drop(lock);
        // The number of a process that runs: this one.
        let own = directory.path().join(format!(".program.reorder-{}", std::process::id()));
        std::fs::create_dir(&own).unwrap();
        let _third = Workplace::beside(&output).unwrap();
        assert!(!used.exists() && !own.exists() && first.directory.exists() && second.directory.exists());
    }

    #[test]
    fn nothing_of_the_place_stays_whatever_is_in_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().join("a b#c$d:e\\ f");
        std::fs::create_dir(&folder).unwrap();
        let place = Workplace::beside(&folder.join("my program")).unwrap();
        let about = folder.join("dependencies");
        let as_it_is = |path: &Path| path.as_os_str().as_bytes().to_vec();
        let escaped = |path: &Path| escaped(path.as_os_str().as_bytes());
        let order = place.file("order0");
        for write in [&as_it_is as &dyn Fn(&Path) -> Vec<u8>, &escaped] {
            let linked = place.output();
            let parts =
                [&write(&linked)[..], b": \\\n ", &write(&order), b" \\\n  a.o\n\n", &write(&order), b":\n"];
            std::fs::write(&about, parts.concat()).unwrap();
            place.correct(&about, Path::new("my program")).unwrap();
            let text = [&write(Path::new("my program"))[..], b": \\\n  a.o\n\n"].concat();
            assert_eq!(String::from_utf8(std::fs::read(&about).unwrap()), String::from_utf8(text));
        }
        // Apple's form: a byte for the kind, a path, a NUL.
        let parts = [
            b"\0ld\0\x10a.o\0\x10",
            &as_it_is(&order)[..],
            b"\0\x10b.o\0\x40",
            &as_it_is(&place.output()),
            b"\0",
        ];
        std::fs::write(&about, parts.concat()).unwrap();
        place.correct(&about, Path::new("out")).unwrap();
        assert_eq!(std::fs::read(&about).unwrap(), b"\0ld\0\x10a.o\0\x10b.o\0\x40out\0");
    }
}
