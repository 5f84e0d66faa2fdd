//! Calls as a compiler: `rustc -C linker=reorder-ld` and others call their linker as if it were `cc`.
//!
//! Takes the arguments of such a call, runs the intended compiler with the same arguments preceded by a folder
//! (`-B`) in which every linker's name is a link to this program, so that the compiler calls us back as the linker. Gives
//! its exit status. What the second call must know is passed in the environment:
//!
//! | variable | holds |
//! |---|---|
//! | `REORDER_OPTIONS` | our options of this call, quoted as for a shell, after those that were there |
//! | `REORDER_LINKER` | the linker that `--ld-path=` or an absolute `-fuse-ld=` names, unless the user set another |
//! | `REORDER_LINKER_PATH` | the folders of `-B`, which clang does not tell its linker |
//! | `REORDER_CALLER` | this process, so that the linker ends when this process is killed |

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use reorder_base::error::{Error, Result};

use super::environment::Environment;
use super::process::{exit_code, tie_to_this_process};
use super::{caller, driver_words, links};

pub(crate) use driver_words::{advice, is_driver_call};

/// The default compiler.
const DEFAULT_DRIVER: &str = "cc";

/// Runs the compiler `wanted`, a path or a name, else `cc`, as `arguments` ask, and gives its exit status as a shell
/// sees it.
///
/// `words` are `arguments` with what their response files hold; they are only looked at. `own_options` are those of
/// ours that were taken out of `arguments` (`--reorder-NAME=VALUE`).
///
/// # Errors
/// There is no such compiler, or it cannot be started, or the folder of links cannot be made.
pub(crate) fn run(
    arguments: Vec<OsString>,
    words: &[OsString],
    own_options: &[OsString],
    wanted: Option<&OsStr>,
    environment: &Environment,
) -> Result<u8> {
    let program = find(wanted.filter(|wanted| !wanted.is_empty()), environment)?;
    let folder = links::create(None, environment)?;
    let mut in_front = OsString::from("-B");
    in_front.push(&folder);
    let mut command = Command::new(&program);
    command.arg(in_front).args(arguments);
    let mut inner = environment.clone();
    let by_path = driver_words::linker_by_path(words);
    if let Some(linker) = by_path.filter(|linker| !environment.is_own(Path::new(linker))) {
        // clang takes the last one. The user's own is the linker that we run then.
        let mut ours = OsString::from("--ld-path=");
        ours.push(folder.join("ld"));
        command.arg(ours);
        if environment.variable("REORDER_LINKER").is_none() {
            inner.variables.insert("REORDER_LINKER".into(), linker);
        }
    }
    inner.add_linker_folders(driver_words::folders(words));
    inner.variables.insert(caller::VARIABLE.into(), caller::this_process());
    hand_on(own_options, &mut inner);
    command.env_clear().envs(inner.for_child()?);
    // A signal that compilers catch, to remove their temporary files.
    tie_to_this_process(&mut command, Signal::SIGTERM);
    let status = command.status().map_err(|source| Error::io(&program, source))?;
    Ok(exit_code(status))
}

/// The compiler to run; never this program.
fn find(wanted: Option<&OsStr>, environment: &Environment) -> Result<PathBuf> {
    let hint = "give a compiler with --reorder-driver=PATH or REORDER_DRIVER=PATH";
    let name = wanted.unwrap_or(OsStr::new(DEFAULT_DRIVER));
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        if environment.is_own(&path) {
            let message = "is this program itself, which needs a compiler to call";
            return Err(Error::usage(message).in_file(&path).with_hint(hint));
        }
        return Ok(path);
    }
    let mut folders = environment.folders("PATH");
    folders.push("/usr/bin".into());
    let usable = |path: &PathBuf| {
        let is_program =
            |facts: std::fs::Metadata| facts.is_file() && facts.permissions().mode() & 0o111 != 0;
        std::fs::metadata(path).is_ok_and(is_program) && !environment.is_own(path)
    };
    folders.iter().map(|folder| folder.join(name)).find(usable).ok_or_else(|| {
        let places: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        Error::usage(format!("no compiler {} in {}", name.display(), places.join(":"))).with_hint(hint)
    })
}

/// Adds `options` to `REORDER_OPTIONS`.
fn hand_on(options: &[OsString], environment: &mut Environment) {
    if options.is_empty() {
        return;
    }
    let mut all = environment.variable("REORDER_OPTIONS").unwrap_or_default().as_bytes().to_vec();
    for option in options {
        if !all.is_empty() {
            all.push(b' ');
        }
        // An argument of a process holds no NUL, the only byte that cannot be quoted.
        all.extend_from_slice(&shlex::bytes::try_quote(option.as_bytes()).unwrap_or_default());
    }
    environment.variables.insert("REORDER_OPTIONS".into(), OsString::from_vec(all));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrapper::talk::hint_of;

    #[test]
    fn options_are_quoted_after_those_that_are_there() {
        let mut environment =
            Environment { variables: Default::default(), own_executable: PathBuf::from("/nonexistent") };
        hand_on(&[], &mut environment);
        assert!(environment.variables.is_empty());
        let odd = OsString::from_vec(b"--reorder-program=a b'\xff\"".to_vec());
        hand_on(&["--reorder-strict".into()], &mut environment);
        hand_on(&[odd.clone(), "--reorder-seed=1".into()], &mut environment);
        let text = environment.variable("REORDER_OPTIONS").unwrap();
        let words = shlex::bytes::split(text.as_bytes()).unwrap();
        assert_eq!(words, [b"--reorder-strict".to_vec(), odd.into_vec(), b"--reorder-seed=1".to_vec()]);
    }

    #[test]
    fn compilers_are_found_and_never_ourselves() {
        let folder = tempfile::tempdir().unwrap();
        let own_executable = folder.path().join("cc");
        std::fs::copy("/bin/true", &own_executable).unwrap();
        let variables = [("PATH".into(), folder.path().into())].into();
        let environment = Environment { variables, own_executable: own_executable.clone() };
        assert_eq!(find(None, &environment).unwrap(), Path::new("/usr/bin/cc"));
        let error = find(Some(own_executable.as_os_str()), &environment).unwrap_err();
        assert!(error.to_string().contains("this program itself"), "{error}");
        let error = find(Some(OsStr::new("alpha-gcc")), &environment).unwrap_err();
        assert!(error.to_string().contains("no compiler alpha-gcc in "), "{error}");
        assert!(hint_of(&error).unwrap().contains("--reorder-driver="));
    }
}
