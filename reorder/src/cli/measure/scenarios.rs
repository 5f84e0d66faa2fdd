//! Which runs are measured: the one of the command line, or the scenarios of `reorder.toml`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::MeasureArguments;
use crate::cli::context::Context;
use crate::cli::ending_args::{scenario_input, scenario_rule};
use crate::cli::scenarios_input::Configured;
use reorder_base::error::{Error, Result};
use reorder_layout::configuration::ScenarioTable;
use reorder_run::measure::MeasureRequest;

/// One request for each run, all for cold starts, and the path of `reorder.toml`, empty if there is none.
///
/// With arguments, the programs of the command line are run with them. Otherwise the scenarios decide, with the programs of
/// the command line in place of their own. Programs without scenarios are run without arguments.
pub(super) fn starts(
    arguments: &MeasureArguments,
    context: &Context,
) -> Result<(Vec<MeasureRequest>, PathBuf)> {
    let configured = arguments.configuration.read(&context.talk)?;
    let runs = configured.document.measure.runs;
    let new = arguments.new.as_deref().map(find_program);
    let named = match arguments.arguments.is_empty() {
        true => selected(&arguments.scenarios, &configured)?,
        false => Vec::new(),
    };
    if named.is_empty() {
        let program = arguments.program.as_deref().ok_or_else(nothing_to_measure)?;
        let mut request = arguments.request(find_program(program), runs)?;
        request.new = new;
        request.scenario = words(&request.arguments).unwrap_or(request.scenario);
        return Ok((vec![request], configured.file.path));
    }
    let common = arguments.request(PathBuf::new(), None)?;
    let start = |(name, table): (&String, &ScenarioTable)| -> Option<Result<MeasureRequest>> {
        let program = match (&arguments.program, &table.program) {
            (Some(program), _) => find_program(program),
            (None, Some(program)) => located_program(program, &configured),
            // It has only traces.
            (None, None) => return None,
        };
        let base = MeasureRequest { new: new.clone(), old: program, ..common.clone() };
        Some(request_of(name, table, &configured, arguments.runs, &base))
    };
    let starts: Vec<MeasureRequest> = named.into_iter().filter_map(start).collect::<Result<_>>()?;
    if starts.is_empty() { Err(nothing_to_measure()) } else { Ok((starts, configured.file.path)) }
}

/// `base` for the scenario called `name`: what the command line says of runs, input and ending overrides the file.
///
/// # Errors
/// An input file that cannot be read, or an invalid `stop-after` or `until`.
pub(crate) fn request_of(
    name: &str,
    table: &ScenarioTable,
    configured: &Configured,
    runs: Option<usize>,
    base: &MeasureRequest,
) -> Result<MeasureRequest> {
    let variables = table.environment.iter();
    let stop = if base.stop.is_set() { base.stop.clone() } else { scenario_rule(name, table, configured)? };
    let input = match &base.input {
        Some(input) => Some(input.clone()),
        None => scenario_input(table, configured)?,
    };
    Ok(MeasureRequest {
        input,
        stop,
        scenario: name.to_owned(),
        arguments: table.arguments.iter().map(OsString::from).collect(),
        directory: table.directory.as_ref().map(|directory| configured.file.located(directory)),
        environment: variables.map(|(name, value)| (name.into(), value.into())).collect(),
        rounds: runs.or(table.runs).or(configured.document.measure.runs).unwrap_or(base.rounds),
        ..base.clone()
    })
}

/// The requested scenarios, otherwise all, by name.
pub(crate) fn selected<'configured>(
    names: &[String],
    configured: &'configured Configured,
) -> Result<Vec<(&'configured String, &'configured ScenarioTable)>> {
    let tables = &configured.document.scenario;
    if let Some(unknown) = names.iter().find(|name| !tables.contains_key(*name)) {
        let known: Vec<&str> = tables.keys().map(String::as_str).collect();
        let hint = match known.is_empty() {
            true => format!("write [scenario.{unknown}] with program and arguments into reorder.toml"),
            false => format!("reorder.toml has: {}", known.join(", ")),
        };
        return Err(Error::usage(format!("no scenario is called {unknown}")).with_hint(hint));
    }
    Ok(tables.iter().filter(|(name, _)| names.is_empty() || names.contains(name)).collect())
}

fn nothing_to_measure() -> Error {
    Error::usage("no program is given, and no scenario of a reorder.toml has one").with_hint(
        "reorder measure PROGRAM -- ARGUMENTS; or write [scenario.NAME] with program = \"…\" into reorder.toml",
    )
}

/// The arguments as a name; `None` if there are none.
fn words(arguments: &[OsString]) -> Option<String> {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// A program of the command line: a file, otherwise what a shell would find.
pub(super) fn find_program(program: &Path) -> PathBuf {
    if program.exists() { program.to_path_buf() } else { looked_up(program) }
}

/// A program of `reorder.toml`: paths are relative to the file, names are looked up as in a shell.
pub(crate) fn located_program(program: &Path, configured: &Configured) -> PathBuf {
    match is_bare_name(program) {
        true => looked_up(program),
        false => configured.file.located(program),
    }
}

fn looked_up(program: &Path) -> PathBuf {
    let folders = std::env::var_os("PATH").filter(|_| is_bare_name(program)).unwrap_or_default();
    let found =
        std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file());
    found.unwrap_or_else(|| program.to_path_buf())
}

fn is_bare_name(program: &Path) -> bool {
    program.components().count() == 1 && !program.as_os_str().as_encoded_bytes().contains(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up_and_paths_are_not() {
        assert!(find_program(Path::new("sh")).is_absolute());
        assert_eq!(find_program(Path::new("./sh")), Path::new("./sh"));
        assert_eq!(find_program(Path::new("no-such-program")), Path::new("no-such-program"));
        assert_eq!(words(&["log".into(), "-1".into()]).as_deref(), Some("log -1"));
    }
}
