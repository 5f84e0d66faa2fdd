//! `reorder-ld`: stands in for a linker.

pub mod caller;
pub mod driver;
pub mod driver_words;
pub mod environment;
pub mod linker_family;
pub mod linker_names;
pub mod links;
pub mod real_linker;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::ExitCode;

use environment::Environment;
use reorder::error::{Error, Result};

/// Runs the linker that is stood in for.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    pass_through(arguments.into_iter().collect()).unwrap_or_else(|error| {
        let hint = error.hint.as_deref().unwrap_or_default();
        let _ = writeln!(std::io::stderr(), "reorder-ld: error: {error}\nreorder-ld: hint: {hint}");
        ExitCode::FAILURE
    })
}

fn pass_through(mut arguments: Vec<OsString>) -> Result<ExitCode> {
    let called = if arguments.is_empty() { OsString::new() } else { arguments.remove(0) };
    let environment = Environment::of_process()?;
    caller::follow(&environment);
    let is_own = |word: &OsString| word.as_bytes().starts_with(b"--reorder-");
    let (own, mut arguments): (Vec<_>, Vec<_>) = arguments.into_iter().partition(is_own);
    if let Some(word) = own.iter().find(|word| word.as_bytes().starts_with(b"--reorder-links")) {
        let folder = word.as_bytes().strip_prefix(b"--reorder-links=").map(OsStr::from_bytes);
        let folder = links::create(folder.map(Path::new), &environment)?;
        let _ = writeln!(std::io::stdout(), "{}", folder.display());
        return Ok(ExitCode::SUCCESS);
    }
    let mut words = Vec::new();
    for argument in &arguments {
        match argument
            .as_bytes()
            .strip_prefix(b"@")
            .and_then(|file| std::fs::read(OsStr::from_bytes(file)).ok())
        {
            Some(text) => words.extend(
                shlex::bytes::split(&text)
                    .unwrap_or_default()
                    .iter()
                    .map(|word| OsStr::from_bytes(word).to_owned()),
            ),
            None => words.push(argument.clone()),
        }
    }
    if driver::is_driver_call(&called, &words) {
        let wanted = environment.variable("REORDER_DRIVER");
        return driver::run(arguments, &words, &own, wanted, &environment).map(ExitCode::from);
    }
    if let Some(advice) = driver::advice(&called, &words) {
        let _ = writeln!(std::io::stderr(), "reorder-ld: note: {advice}");
    }
    let called = real_linker::stand_in_name(&called, &mut arguments);
    let linker = real_linker::find(environment.variable("REORDER_LINKER"), &called, &environment)?;
    if environment.variable("REORDER_VERBOSE").is_some() {
        let _ = writeln!(std::io::stderr(), "reorder-ld: {} ({})", linker.program.display(), linker.version);
    }
    let mut command = linker.command(&environment)?;
    Err(Error::io(&linker.program, command.args(arguments).exec()))
}
