//! The folder of links: this program under the name of every linker, for compilers that look for linkers in a folder
//! (`-B`).
//!
//! Takes a folder, or chooses one that belongs to the user; gives its path. Making it again has no effect, also when
//! several processes do so at once, and only links to a program of our name are ever replaced.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use reorder_base::error::{Error, Result};
use reorder_base::hexadecimal::encode;
use sha2::{Digest, Sha256};

use super::environment::Environment;
use super::linker_names;

/// The names by which compilers call linkers without a version, and ours for calls of a compiler.
const NAMES: [&str; 9] =
    ["ld", "ld.lld", "ld.gold", "ld.bfd", "ld.mold", "ld.wild", "ld64.lld", "ld64", "reorder-cc"];

/// Makes the folder of links, `folder` or the default one, and gives its absolute path.
///
/// The default is `reorder/linkers-DIGEST` in the user's cache directory (`XDG_CACHE_HOME`, `~/.cache`), or where that
/// cannot be written, a folder of the user's own in `TMPDIR`. The digest is that of this program's path, so that two
/// versions do not fight for one folder.
///
/// # Errors
/// The folder cannot be made, or other files have the links' names.
pub(crate) fn create(folder: Option<&Path>, environment: &Environment) -> Result<PathBuf> {
    if let Some(folder) = folder {
        fs::create_dir_all(folder).map_err(|source| Error::io(folder, source))?;
        return fill(folder, environment);
    }
    let digest = Sha256::digest(environment.own_executable.as_os_str().as_bytes());
    let digest = encode(&digest[..8]);
    if let Some(cache) = environment.cache_directory() {
        let folder = cache.join(format!("reorder/linkers-{digest}"));
        if fs::create_dir_all(&folder).is_ok()
            && let Ok(path) = fill(&folder, environment)
        {
            return Ok(path);
        }
    }
    let temporary = environment.variable("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let user = nix::unistd::geteuid();
    let folder = temporary.join(format!("reorder-linkers-{user}-{digest}"));
    private(&folder, user.as_raw())?;
    fill(&folder, environment)
}

/// Makes `folder` in a place that all users can write to; it must be ours, or another user could choose the linker.
fn private(folder: &Path, user: u32) -> Result<()> {
    let failed = |source| Error::io(folder, source).with_hint("set TMPDIR to a directory of your own");
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(source) if source.kind() != ErrorKind::AlreadyExists => return Err(failed(source)),
        _ => {}
    }
    let facts = fs::symlink_metadata(folder).map_err(failed)?;
    if facts.is_dir() && facts.uid() == user && facts.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Error::usage("is not a directory that only you can write to")
        .in_file(folder)
        .with_hint("remove it, or set TMPDIR to a directory of your own"))
}

fn fill(folder: &Path, environment: &Environment) -> Result<PathBuf> {
    let folder = fs::canonicalize(folder).map_err(|source| Error::io(folder, source))?;
    let versions = linker_names::versioned(&environment.folders("PATH"));
    for name in NAMES.into_iter().map(OsString::from).chain(versions) {
        let link = folder.join(&name);
        match fs::read_link(&link) {
            Ok(target) if target == environment.own_executable => continue,
            Ok(target) if is_ours(&target) => {}
            Err(source) if source.kind() == ErrorKind::NotFound => {}
            _ => {
                return Err(Error::usage("exists and is no link to reorder-ld")
                    .in_file(&link)
                    .with_hint("name another directory: reorder-ld --reorder-links=DIRECTORY"));
            }
        }
        replace(&link, environment)?;
    }
    Ok(folder)
}

fn is_ours(target: &Path) -> bool {
    target.file_name().is_some_and(|name| name.as_bytes().starts_with(b"reorder-"))
}

/// Puts a link in place at once: a compiler that looks for it meanwhile finds the old or the new one.
fn replace(link: &Path, environment: &Environment) -> Result<()> {
    let failed = |source| Error::io(link, source);
    let folder = link.parent().unwrap_or(Path::new("."));
    let drafts = tempfile::Builder::new().prefix(".links-").tempdir_in(folder).map_err(failed)?;
    let draft = drafts.path().join("link");
    symlink(&environment.own_executable, &draft).map_err(failed)?;
    fs::rename(&draft, link).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn environment(folder: &Path, variables: &[(&str, &Path)]) -> Environment {
        let own_executable = folder.join("reorder-ld");
        fs::write(&own_executable, "").unwrap();
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Environment { variables, own_executable }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// What the system has under a name with a version is among them.
    fn expected() -> Vec<String> {
        let versions = linker_names::versioned(&[]).into_iter().map(|name| name.into_string().unwrap());
        let mut expected: Vec<String> = NAMES.map(String::from).into_iter().chain(versions).collect();
        expected.sort();
        expected
    }

    #[test]
    fn a_linker_with_a_version_gets_a_link_of_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bin");
        fs::create_dir(&path).unwrap();
        for name in ["ld.lld-99", "ld.bfd-2.40", "ld.lld-x", "lld-99", "ld.so-1", "clang-99"] {
            fs::write(path.join(name), "").unwrap();
        }
        let environment = environment(folder.path(), &[("HOME", folder.path()), ("PATH", &path)]);
        let links = create(None, &environment).unwrap();
        for (name, is_made) in [
            ("ld.lld-99", true),
            ("ld.bfd-2.40", true),
            ("ld.lld-x", false),
            ("lld-99", false),
            ("ld.so-1", false),
            ("clang-99", false),
        ] {
            assert_eq!(links.join(name).exists(), is_made, "{name}");
        }
    }

    #[test]
    fn made_twice_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let environment = environment(folder.path(), &[("HOME", folder.path())]);
        let first = create(None, &environment).unwrap();
        let made = fs::symlink_metadata(first.join("ld")).unwrap().ino();
        assert_eq!(create(None, &environment).unwrap(), first);
        assert_eq!(fs::symlink_metadata(first.join("ld")).unwrap().ino(), made);
        assert_eq!(names(&first), expected());
        assert!(NAMES.iter().all(|name| environment.is_own(&first.join(name))));
    }

    #[test]
    fn an_older_program_of_ours_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let environment = environment(folder.path(), &[]);
        let links = folder.path().join("links");
        fs::create_dir(&links).unwrap();
        symlink("/elsewhere/reorder-ld", links.join("ld.gold")).unwrap();
        create(Some(&links), &environment).unwrap();
        assert!(environment.is_own(&links.join("ld.gold")));
        for other in ["file", "link"] {
            fs::remove_file(links.join("ld")).unwrap();
            match other {
                "file" => fs::write(links.join("ld"), "precious").unwrap(),
                _ => symlink("/usr/bin/ld.bfd", links.join("ld")).unwrap(),
            }
            let error = create(Some(&links), &environment).unwrap_err();
            assert!(error.to_string().contains("no link to reorder-ld"), "{error}");
        }
        assert_eq!(fs::read_link(links.join("ld")).unwrap(), Path::new("/usr/bin/ld.bfd"));
    }

    #[test]
    fn without_a_home_a_folder_of_one_s_own_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let missing = Path::new("/proc/nowhere");
        let environment = environment(folder.path(), &[("HOME", missing), ("TMPDIR", folder.path())]);
        let links = create(None, &environment).unwrap();
        assert_eq!(fs::metadata(&links).unwrap().mode() & 0o777, 0o700);
        // Other users could put their own linker into it.
        fs::set_permissions(&links, fs::Permissions::from_mode(0o777)).unwrap();
        let error = create(None, &environment).unwrap_err();
        assert!(error.to_string().contains("only you"), "{error}");
    }

    #[test]
    fn many_at_once_make_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let environment = environment(folder.path(), &[("HOME", folder.path())]);
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| create(None, &environment).unwrap())).collect();
            workers.into_iter().for_each(|worker| assert!(worker.join().unwrap().is_absolute()));
        });
        let links = create(None, &environment).unwrap();
        assert!(NAMES.iter().all(|name| environment.is_own(&links.join(name))));
        assert_eq!(names(&links), expected());
    }
}
