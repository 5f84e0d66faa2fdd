//! What a command reads, or has just written, is not to be replaced by its page.
//!
//! In: where the page goes, and the other files. Out: nothing, or an error that names the file. A file is known by device
//! and inode, and by the place of its name, which holds for files that do not exist yet.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::write::resolve_links;

/// Refuses a page that would take the place of one of `files`, which are of the kind `what`, such as "an image".
///
/// # Errors
/// The page is one of them.
pub(super) fn refuse_to_replace<'path>(
    page: &Path,
    what: &str,
    files: impl IntoIterator<Item = &'path Path>,
) -> Result<()> {
    let (inode, name) = (inode(page), name(page));
    let is_page = |file: &Path| {
        (inode.is_some() && inode == self::inode(file)) || (name.is_some() && name == self::name(file))
    };
    match files.into_iter().any(is_page) {
        false => Ok(()),
        true => Err(Error::usage(format!("the page would replace {what}"))
            .in_file(page)
            .with_hint("give the page another name, such as report.html")),
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// The directory without links, and the name in it.
fn name(path: &Path) -> Option<(PathBuf, OsString)> {
    let target = resolve_links(path).ok()?;
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some((directory.canonicalize().ok()?, target.file_name()?.to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn files_that_do_not_exist_yet_are_known_by_their_place() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("below")).unwrap();
        std::os::unix::fs::symlink("new", at("link")).unwrap();
        for same in ["new", "below/../new", "./new", "link"] {
            assert!(refuse_to_replace(&at(same), "an image", [at("new").as_path()]).is_err(), "{same}");
        }
        for other in ["other", "below/new"] {
            assert!(refuse_to_replace(&at(other), "an image", [at("new").as_path()]).is_ok(), "{other}");
        }
        std::fs::write(at("file"), "").unwrap();
        std::fs::hard_link(at("file"), at("twin")).unwrap();
        assert!(refuse_to_replace(&at("twin"), "an image", [at("file").as_path()]).is_err());
    }
}
