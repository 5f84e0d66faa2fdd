//! A command's outputs must not replace its inputs or each other.
//!
//! In: the files of one run and what they are. Out: nothing, or an error that names both. A file is identified by device and
//! inode; one that does not exist yet by its directory and name.

use std::fmt::Display;
use std::path::Path;

use reorder_base::error::{Error, Result};
use reorder_system::write::Place;

/// The files of one run so far.
#[derive(Debug, Default)]
pub(super) struct KeptFiles {
    known: Vec<(Place, String)>,
}

impl KeptFiles {
    /// Adds files that are read, or kept for another reason; `what` names each, such as "an image".
    pub(super) fn reads(
        mut self,
        what: impl Display,
        files: impl IntoIterator<Item = impl AsRef<Path>>,
    ) -> Self {
        let places = files.into_iter().filter_map(|file| place(file.as_ref()));
        self.known.extend(places.map(|place| (place, what.to_string())));
        self
    }

    /// Adds a file that is written, called `what`, such as "page".
    ///
    /// # Errors
    /// It is one of the files added before; `hint` says what to do.
    pub(super) fn writes(self, what: &str, path: &Path, hint: &str) -> Result<Self> {
        self.replaces(what, "another output", path, hint)
    }

    /// The same for a file that is also read, and that errors about other outputs call `known`.
    ///
    /// # Errors
    /// As [`Self::writes`].
    pub(super) fn replaces(
        mut self,
        what: &str,
        known: impl Display,
        path: &Path,
        hint: &str,
    ) -> Result<Self> {
        let Some(place) = place(path) else { return Ok(self) };
        if let Some((_, other)) = self.known.iter().find(|(known, _)| *known == place) {
            return Err(Error::usage(format!("the {what} would replace {other}"))
                .in_file(path)
                .with_hint(hint));
        }
        self.known.push((place, known.to_string()));
        Ok(self)
    }
}

/// `None` for devices and pipes, which store nothing, and for files that cannot be written: no data can be lost there.
fn place(path: &Path) -> Option<Place> {
    match std::fs::metadata(path) {
        Ok(metadata) => metadata.is_file().then(|| Place::of_file(&metadata)),
        Err(_) => Place::of(path).ok().flatten(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn one_file_has_many_names() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("below")).unwrap();
        std::fs::write(at("file"), "").unwrap();
        std::fs::hard_link(at("file"), at("twin")).unwrap();
        std::os::unix::fs::symlink("file", at("soft")).unwrap();
        std::os::unix::fs::symlink("new", at("link")).unwrap();
        let replaces = |read: &str, written: &str| {
            KeptFiles::default().reads("an image", [at(read)]).writes("page", &at(written), "").is_err()
        };
        for (read, written) in [
            ("file", "file"),
            ("file", "twin"),
            ("file", "soft"),
            ("file", "below/../file"),
            // Not there yet.
            ("new", "new"),
            ("new", "./new"),
            ("new", "below/../new"),
            ("new", "link"),
        ] {
            assert!(replaces(read, written), "{read} {written}");
        }
        for (read, written) in
            [("file", "new"), ("new", "other"), ("new", "below/new"), ("file", "none/file")]
        {
            assert!(!replaces(read, written), "{read} {written}");
        }
        let null = Path::new("/dev/null");
        let twice = KeptFiles::default().writes("page", null, "").unwrap().writes("page", null, "");
        assert!(twice.is_ok());
        let twice = KeptFiles::default().writes("page", &at("new"), "").unwrap();
        let message = twice.writes("map", &at("link"), "").unwrap_err().to_string();
        assert!(message.ends_with("the map would replace another output"), "{message}");
    }
}
