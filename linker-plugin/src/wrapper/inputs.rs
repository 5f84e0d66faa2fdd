//! What a link depends on, and whether that has changed.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use reorder_base::error::Result;
use serde::{Deserialize, Serialize};

use super::contents::{Digest, Stamp, digest_of_file, digest_of_parts};
use super::invocation::Invocation;
use super::link::OrderedLink;
use super::route::Route;

/// A file as it was when it was linked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Input {
    stamp: Stamp,
    digest: Digest,
}

impl Input {
    fn of(path: &Path) -> Result<Self> {
        Ok(Self { stamp: Stamp::of(path)?, digest: digest_of_file(path)? })
    }

    /// Whether the file at `path` has the same contents. Only a file with another stamp is read.
    fn is_still(&self, path: &Path) -> bool {
        Stamp::of(path).is_ok_and(|stamp| stamp == self.stamp)
            || digest_of_file(path).is_ok_and(|digest| digest == self.digest)
    }
}

/// Reads all inputs of a link; `None` if they cannot show whether a later link is the same.
#[must_use]
pub(crate) fn inputs_of(invocation: &Invocation) -> Option<Vec<Input>> {
    let paths: Vec<PathBuf> = invocation.inputs().collect();
    let read = |path: &PathBuf| (!is_thin_archive(path)).then(|| Input::of(path).ok()).flatten();
    paths.par_iter().map(read).collect()
}

/// Whether the inputs of `invocation` are still `inputs`.
#[must_use]
pub(crate) fn are_same(inputs: &[Input], invocation: &Invocation) -> bool {
    let paths: Vec<PathBuf> = invocation.inputs().collect();
    paths.len() == inputs.len() && paths.par_iter().zip(inputs).all(|(path, input)| input.is_still(path))
}

/// Thin archives hold names of objects instead of objects, so their contents show no changes.
fn is_thin_archive(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 8];
    std::fs::File::open(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && magic == *b"!<thin>\n"
}

/// The key of a link, independent of the contents of its inputs.
///
/// # Errors
/// A linker that is gone.
pub(crate) fn key(link: &OrderedLink<'_>, route: Route) -> Result<Digest> {
    let (real, invocation) = (link.real, link.invocation);
    let temporary = std::env::temp_dir();
    let arguments: Vec<OsString> =
        invocation.expanded.iter().map(|argument| without_temporary_names(argument, &temporary)).collect();
    let settings = settings(link, route)?;
    let linker = format!("{} {} {:?}", real.program.display(), real.version, Stamp::of(&real.program)?);
    let parts = [
        settings.as_bytes(),
        linker.as_bytes(),
        link.recorded.digest.0.as_bytes(),
        invocation.directory.as_os_str().as_bytes(),
        invocation.output.as_os_str().as_bytes(),
    ];
    let parts = parts.into_iter().chain(arguments.iter().map(|argument| argument.as_bytes()));
    Ok(digest_of_parts("link", parts))
}

/// The name of what is made of the finished image at `path`: that depends only on what is named here.
///
/// # Errors
/// The system's.
pub(crate) fn image_key(link: &OrderedLink<'_>, path: &Path) -> Result<Digest> {
    let image = match link.cache {
        Some(_) => digest_of_file(path)?,
        None => Digest(String::new()),
    };
    let settings = settings(link, Route::PostLink)?;
    let program = link.invocation.output_path();
    let parts = [&link.recorded.digest.0, &image.0, &settings].map(|part| part.as_bytes());
    let parts = parts.into_iter().chain([program.as_os_str().as_bytes(), link.real.version.as_bytes()]);
    Ok(digest_of_parts("image", parts))
}

/// What else an order depends on. Two builds of this program may compute different ones.
fn settings(link: &OrderedLink<'_>, route: Route) -> Result<String> {
    let options = link.options;
    Ok(format!(
        "{} {:?} {route:?} {:?} {:?} {:?} {:?}",
        env!("CARGO_PKG_VERSION"),
        Stamp::of(&link.environment.own_executable)?,
        options.layout,
        options.data,
        options.debug,
        options.recorded_as
    ))
}

/// Compilers that link give their objects random names; what is in them is compared anyway.
fn without_temporary_names(argument: &OsStr, temporary: &Path) -> OsString {
    let (bytes, folder) = (argument.as_bytes(), temporary.as_os_str().as_bytes());
    let position = bytes.windows(folder.len().max(1)).position(|window| window == folder);
    match position {
        Some(position) => OsStr::from_bytes(&bytes[..position + folder.len()]).to_owned(),
        None => argument.to_owned(),
    }
}
