//! The place where a link happens before its result gets its name.
//!
//! A directory beside the output, so that the finished file needs a change of name only: whoever opens the output sees
//! the old contents or the new ones, whatever happens meanwhile. It vanishes with its value; what a killed process left is
//! removed by the next link of the same output.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use reorder::error::{Error, Result};

/// A directory beside an output.
#[derive(Debug)]
pub struct Workplace {
    directory: PathBuf,
    output: PathBuf,
}

impl Workplace {
    /// Makes a place for links of `output`.
    ///
    /// # Errors
    /// When the output's directory cannot be written.
    pub fn beside(output: &Path) -> Result<Self> {
        let start = start_of_name(output);
        let folder =
            output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        remove_abandoned(folder, &start);
        let mut name = start;
        name.push(std::process::id().to_string());
        let directory = folder.join(name);
        // Of a process with the same number that did not end well.
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).map_err(|error| Error::io(&directory, error))?;
        Ok(Self { directory, output: output.to_path_buf() })
    }

    /// Where a link is made that becomes the output: under its name, which some linkers write into it.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.directory.join(self.output.file_name().unwrap_or(OsStr::new("output")))
    }

    /// A file for something else; `role` tells such files apart.
    #[must_use]
    pub fn file(&self, role: &str) -> PathBuf {
        self.directory.join(format!("reorder.{role}"))
    }

    /// Removes what stands under the output's name, as linkers do when they begin. To free a large file takes as long as
    /// much of a link: as long as it is open, it is only its name that goes, and the rest happens meanwhile.
    pub fn remove_old_output(&self) {
        let held = std::fs::File::open(&self.output);
        let _ = std::fs::remove_file(&self.output);
        std::thread::spawn(move || drop(held));
    }

    /// `text` with this place's path of the output as the user has it.
    #[must_use]
    pub fn spelled(&self, text: &[u8], output: &Path) -> Vec<u8> {
        let spelled = replaced(text, self.output().as_os_str().as_bytes(), output.as_os_str().as_bytes());
        let trial = self.file("trial");
        replaced(&spelled, trial.as_os_str().as_bytes(), output.as_os_str().as_bytes())
    }

    /// Gives what stands at [`Self::output`] its final name.
    ///
    /// # Errors
    /// The system's.
    pub fn deliver(&self) -> Result<()> {
        std::fs::rename(self.output(), &self.output).map_err(|error| Error::io(&self.output, error))
    }

    /// Corrects a file that a linker wrote about its output: the output is called `spelled`, and nothing else of this place
    /// is mentioned, as if it had never been there.
    ///
    /// # Errors
    /// The system's.
    pub fn correct(&self, file: &Path, spelled: &Path) -> Result<()> {
        let Ok(text) = std::fs::read(file) else { return Ok(()) };
        let output = self.output();
        let corrected = replaced(&text, output.as_os_str().as_bytes(), spelled.as_os_str().as_bytes());
        let corrected = without_words(&corrected, self.directory.as_os_str().as_bytes());
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

/// `.NAME.reorder-`; a process number follows.
fn start_of_name(output: &Path) -> OsString {
    let mut start = OsString::from(".");
    start.push(output.file_name().unwrap_or(OsStr::new("output")));
    start.push(".reorder-");
    start
}

/// Removes places of processes that are gone.
fn remove_abandoned(folder: &Path, start: &OsStr) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let process =
            name.as_bytes().strip_prefix(start.as_bytes()).and_then(|rest| std::str::from_utf8(rest).ok());
        let Some(process) =
            process.and_then(|process| process.parse::<i32>().ok()).filter(|&process| process > 0)
        else {
            continue;
        };
        let process = nix::unistd::Pid::from_raw(process);
        if nix::sys::signal::kill(process, None) == Err(nix::errno::Errno::ESRCH) {
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

/// `text` without words that start with `start`. A line that says nothing else, as in rules for make, vanishes with them.
fn without_words(text: &[u8], start: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let mut rest = line.to_vec();
        while let Some(position) = position_of(&rest, start) {
            let length = rest[position..].iter().take_while(|byte| !byte.is_ascii_whitespace()).count();
            // With the blank in front of it.
            let first = position - usize::from(position > 0 && rest[position - 1] == b' ');
            rest.drain(first..position + length);
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
}
