//! Finds the real linker.
//!
//! Takes what the user wants, or else the name under which this program was called; gives a program that is not this
//! one, and its family. Folders are searched in this order:
//!
//! 1. those in `REORDER_LINKER_PATH`: where the compiler that called us would have looked, as far as it does not say so;
//! 2. those in `COMPILER_PATH`, by which gcc tells its linker where it looks, rustc's own linker among them;
//! 3. those in `PATH`;
//! 4. `/usr/bin`.
//!
//! Called under a linker's name (`ld.lld`, `aarch64-linux-gnu-ld`), we stand in for that; under any other name for `ld`,
//! the system's linker, because a compiler would have called it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use reorder_base::error::{Error, Result};

use super::cache::Cache;
use super::contents::{Stamp, digest_of_parts};
use super::environment::Environment;
use super::linker_family::Family;
use super::{environment, linker_family, linker_names};

/// A linker that does the linking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RealLinker {
    /// Its file.
    pub(crate) program: PathBuf,
    /// What options it understands.
    pub(crate) family: Family,
    /// The first line that it says about its version.
    pub(crate) version: String,
}

impl RealLinker {
    /// What `program` is, by the version that it prints, or printed when it was last changed.
    ///
    /// # Errors
    /// It cannot be run or is no linker.
    pub(crate) fn of(program: PathBuf, environment: &Environment, cache: Option<&Cache>) -> Result<Self> {
        let stamp = format!("{:?}", Stamp::of(&program)?);
        let parts = [program.as_os_str().as_bytes(), stamp.as_bytes()];
        let key = digest_of_parts("linker", parts.into_iter());
        let known = cache.and_then(|cache| cache.get::<(Family, String)>(&key));
        let (family, version) = match known {
            Some(known) => known,
            None => {
                let said = linker_family::identify(&program, &environment.for_child()?)?;
                if let Some(cache) = cache {
                    cache.put(&key, &said);
                }
                said
            }
        };
        Ok(Self { program, family, version })
    }

    /// A call of this linker, without arguments.
    ///
    /// # Errors
    /// As [`command`].
    pub(crate) fn command(&self, environment: &Environment) -> Result<Command> {
        command(&self.program, environment)
    }
}

/// A call of the linker `program`, without arguments, that counts us for the detection of cycles.
///
/// # Errors
/// There are so many of our processes that they must be a cycle.
pub(crate) fn command(program: &Path, environment: &Environment) -> Result<Command> {
    let mut command = Command::new(program);
    command.env_clear().envs(environment.for_child()?);
    Ok(command)
}

/// Finds the linker that `arguments_zero`, the name of our own command, stands in for.
///
/// `wanted` is what the user set: a path or a name such as `ld.lld`.
///
/// # Errors
/// There is no program of that name, it is this program, or wrappers call each other in a cycle.
pub(crate) fn locate(
    wanted: Option<&OsStr>,
    arguments_zero: &OsStr,
    environment: &Environment,
) -> Result<PathBuf> {
    environment.for_child()?;
    let wanted = wanted.filter(|wanted| !wanted.is_empty());
    match wanted {
        Some(path) if path.as_bytes().contains(&b'/') => given(Path::new(path), environment),
        Some(name) => search(&linker_names::of_wish(name), environment),
        None => {
            let called = Path::new(arguments_zero).file_name().unwrap_or_default();
            search(&linker_names::of_call(called), environment)
        }
    }
}

/// The name that this call stands in for, to be given to [`locate`]: of lld's own option `-flavor`, which is taken out of
/// `arguments` because the linker that we run has its own name; else `arguments_zero`, except that a call for Mach-O under
/// no linker's name means `ld64.lld` where the system has no linker for that.
pub(crate) fn stand_in_name(arguments_zero: &OsStr, arguments: &mut Vec<OsString>) -> OsString {
    if let [option, flavor, ..] = arguments.as_slice()
        && (option == "-flavor" || option == "--flavor")
        && let Some(name) = linker_names::of_flavor(flavor)
    {
        arguments.drain(..2);
        return name.into();
    }
    let is_mach_o =
        arguments.iter().any(|argument| argument == "-platform_version" || argument == "-syslibroot");
    let called = Path::new(arguments_zero).file_name().unwrap_or_default();
    let is_linker = linker_names::is_linker(called);
    if is_mach_o && !cfg!(target_os = "macos") && !is_linker {
        "ld64.lld".into()
    } else {
        arguments_zero.to_owned()
    }
}

/// A linker that was given by its path.
fn given(path: &Path, environment: &Environment) -> Result<PathBuf> {
    let hint = "give a linker with --reorder-linker=PATH or REORDER_LINKER=PATH";
    if environment.is_own(path) {
        let message = "is this program itself, which needs another linker to do the linking";
        return Err(Error::usage(message).in_file(path).with_hint(hint));
    }
    match std::fs::metadata(path) {
        Err(source) => Err(Error::io(path, source).with_hint(hint)),
        Ok(_) if is_program(path) => Ok(path.to_path_buf()),
        Ok(_) => Err(Error::usage("is not a program").in_file(path).with_hint(hint)),
    }
}

/// The first of `names` that is a program in one of the folders; an earlier name counts more than an earlier folder.
fn search(names: &[OsString], environment: &Environment) -> Result<PathBuf> {
    let folders = folders(environment);
    let usable = |path: &Path| is_program(path) && !environment.is_own(path);
    for name in names {
        for folder in &folders {
            let path = folder.join(name);
            if usable(&path) {
                return Ok(path);
            }
        }
    }
    for name in names.iter().filter(|name| linker_names::has_versions(name)) {
        if let Some(path) = folders.iter().find_map(|folder| newest(folder, name, &usable)) {
            return Ok(path);
        }
    }
    let listed: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let own = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let own = own.filter(|path| environment.is_own(path)).count();
    let itself = if own > 0 { " except this program itself" } else { "" };
    Err(Error::usage(format!("no linker{itself}: looked for {} in {}", listed.join(", "), places.join(":")))
        .with_hint("install it, or give another with --reorder-linker=PATH or REORDER_LINKER=PATH"))
}

/// The highest version of `name` in `folder`.
fn newest(folder: &Path, name: &OsStr, usable: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let versions = entries.filter_map(|entry| {
        let version = linker_names::version_after(&entry.file_name(), name)?;
        Some((version, entry.path())).filter(|(_, path)| usable(path))
    });
    versions.max().map(|(_, path)| path)
}

/// The folders to search, each once.
fn folders(environment: &Environment) -> Vec<PathBuf> {
    let lists = [environment::LINKER_PATH, "COMPILER_PATH", "PATH"].map(|name| environment.folders(name));
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in lists.into_iter().flatten().chain([PathBuf::from("/usr/bin")]) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

fn is_program(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests;
