//! `reorder.toml`: what a repository keeps for all commands.
//!
//! In: a directory, or a file by name. Out: [`ConfigurationFile`], its text and the directory that its paths are
//! relative to, and by [`Document`] the tables that commands share. Each command ignores the tables of others.

mod document;

use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

pub use document::{
    Document, GateTable, LimitValue, MeasureTable, ModelTable, ScenarioTable, flatten_limits,
};

use reorder_base::error::{Error, Result};

/// The name of the file.
pub const FILE_NAME: &str = "reorder.toml";

/// A configuration and the directory that its relative paths are relative to.
#[derive(Clone, Debug, Default)]
pub struct ConfigurationFile {
    /// Empty when there is none.
    pub path: PathBuf,
    /// As written.
    pub text: String,
    /// All tables.
    pub table: Table,
    /// Why a file that was found is not used.
    pub note: Option<String>,
}

impl ConfigurationFile {
    /// The configuration in `chosen` (`off` for none), else the nearest one at or above `directory`, else an empty one.
    ///
    /// Configurations name programs to run. So a file that was found, not named, is used only if the user or root owns it
    /// and it is not world-writable; otherwise there is a note, which says that `flag` uses it anyway.
    ///
    /// # Errors
    /// Files that cannot be read or are not TOML, with the offset.
    pub fn find(chosen: Option<&Path>, directory: &Path, flag: &str) -> Result<Self> {
        let path = match chosen {
            Some(path) if path == Path::new("off") => None,
            Some(path) => Some(directory.join(path)),
            None => directory.ancestors().map(|folder| folder.join(FILE_NAME)).find(|file| file.is_file()),
        };
        let Some(path) = path else { return Ok(Self::default()) };
        let failed = |error| Error::io(&path, error);
        let mut opened = std::fs::File::open(&path).map_err(failed)?;
        if chosen.is_none()
            && let Some(reason) =
                distrust(&opened.metadata().map_err(failed)?, nix::unistd::geteuid().as_raw())
        {
            let note = format!("{} is not used: {reason}; {flag} uses it anyway", path.display());
            return Ok(Self { note: Some(note), ..Self::default() });
        }
        let mut text = String::new();
        // Devices and pipes have no end.
        opened.by_ref().take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > MAX_FILE {
            return Err(Error::usage("larger than any configuration")
                .in_file(&path)
                .with_hint(format!("name a reorder.toml with {flag}")));
        }
        let table = text.parse::<Table>().map_err(|error| malformed(&error, &text, &path))?;
        Ok(Self { path, text, table, note: None })
    }

    /// The tables that commands share.
    ///
    /// # Errors
    /// Unknown keys and invalid values, with the offset.
    pub fn document(&self) -> Result<Document> {
        toml::from_str(&self.text).map_err(|error| malformed(&error, &self.text, &self.path))
    }

    /// The table called `name`, if there is one.
    ///
    /// # Errors
    /// A value that is not a table.
    pub fn subtable(&self, name: &str) -> Result<Option<&Table>> {
        match self.table.get(name) {
            None => Ok(None),
            Some(Value::Table(table)) => Ok(Some(table)),
            Some(_) => Err(self.mistake(
                &format!("{name} is no table"),
                &format!("write [{name}] and the options below it"),
            )),
        }
    }

    /// A path of the file: relative ones are relative to the file's directory.
    #[must_use]
    pub fn located(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// A mistake in the file.
    #[must_use]
    pub fn mistake(&self, cause: &str, hint: &str) -> Error {
        Error::usage(cause).in_file(&self.path).with_hint(hint)
    }
}

/// A megabyte.
const MAX_FILE: u64 = 1 << 20;

fn malformed(error: &toml::de::Error, text: &str, path: &Path) -> Error {
    let offset = error.span().map_or(0, |span| span.start);
    let before = text.get(..offset).unwrap_or_default();
    let (line, column) = (before.matches('\n').count() + 1, before.lines().last().map_or(0, str::len) + 1);
    let column = if before.ends_with('\n') { 1 } else { column };
    let message = format!("line {line}, column {column}: {}", error.message());
    Error::malformed(offset as u64, message).in_file(path)
}

/// Why `user` must not trust a file with these `facts`: another user may have put it there.
fn distrust(facts: &std::fs::Metadata, user: u32) -> Option<String> {
    if facts.uid() != user && facts.uid() != 0 {
        return Some("it belongs to another user".to_owned());
    }
    (facts.mode() & 0o002 != 0).then(|| "every user can write to it".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn files_of_others_are_not_used_unless_named() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE_NAME);
        std::fs::write(&file, "[link]\nseed = 3\n").unwrap();
        let find =
            |chosen: Option<&Path>| ConfigurationFile::find(chosen, directory.path(), "an option").unwrap();
        assert!(find(None).note.is_none() && !find(None).table.is_empty());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        let found = find(None);
        assert!(
            found.note.is_some_and(|note| note.contains("every user can write to it"))
                && found.table.is_empty()
        );
        assert!(find(Some(&file)).note.is_none() && !find(Some(&file)).table.is_empty());
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        let facts = std::fs::metadata(&file).unwrap();
        assert_eq!(distrust(&facts, facts.uid()), None);
        assert_eq!(distrust(&facts, facts.uid() + 1).is_some(), facts.uid() != 0);
    }
}
