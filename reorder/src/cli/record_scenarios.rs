//! Which scenarios of `reorder.toml` are recorded, and where their traces go.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cli::ending_args::{scenario_input, scenario_rule};
use crate::cli::measure::{located_program, selected};
use crate::cli::scenarios_input::Configured;
use reorder_base::error::{Error, Result};
use reorder_layout::configuration::ScenarioTable;
use reorder_run::record::RecordRequest;

/// A scenario that can be recorded.
pub(super) struct RecordedScenario {
    pub(super) name: String,
    /// What is run.
    pub(super) request: RecordRequest,
    /// The directory of its traces.
    pub(super) output: PathBuf,
    /// The exit status that is expected.
    pub(super) status: i32,
}

/// The scenarios called `names`, else all that have a program.
///
/// # Errors
/// Unknown names, scenarios without a program or a directory for traces, and nothing to record.
pub(super) fn scenarios_to_record(
    names: &[String],
    configured: &Configured,
) -> Result<Vec<RecordedScenario>> {
    let tables = selected(names, configured)?;
    let with_program = tables.into_iter().filter(|(_, table)| !names.is_empty() || table.program.is_some());
    let scenarios: Vec<RecordedScenario> =
        with_program.map(|(name, table)| scenario(name, table, configured)).collect::<Result<_>>()?;
    for (number, one) in scenarios.iter().enumerate() {
        // Otherwise the recordings of one would replace those of the other.
        let place = |scenario: &RecordedScenario| {
            // The path need not exist yet, so resolve its nearest existing ancestor.
            let path = std::path::absolute(&scenario.output).unwrap_or_else(|_| scenario.output.clone());
            let existing = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
            let found = existing.and_then(|(above, real)| Some(real.join(path.strip_prefix(above).ok()?)));
            found.unwrap_or(path)
        };
        if let Some(other) = scenarios[..number].iter().find(|other| place(other) == place(one)) {
            let cause = format!(
                "[scenario.{}] and [scenario.{}] have the same place for traces",
                other.name, one.name
            );
            let hint = format!("give each its own, such as traces = [\"traces/{}\"]", one.name);
            return Err(configured.file.mistake(&cause, &hint));
        }
    }
    match scenarios.is_empty() {
        true => Err(Error::usage("no program is given, and no scenario of a reorder.toml has one").with_hint(
            "reorder record -o traces -- PROGRAM ARGUMENTS; or write [scenario.NAME] with program and traces into reorder.toml",
        )),
        false => Ok(scenarios),
    }
}

fn scenario(name: &str, table: &ScenarioTable, configured: &Configured) -> Result<RecordedScenario> {
    let mistake =
        |cause: &str, hint: &str| configured.file.mistake(&format!("[scenario.{name}] {cause}"), hint);
    let program = table.program.as_ref().ok_or_else(|| mistake("has no program", "add program = \"…\""))?;
    let output = table.traces.first().map(|place| configured.file.located(place));
    let output = output.filter(|place| place.is_dir() || !place.exists()).ok_or_else(|| {
        mistake("has no directory for traces", &format!("add traces = [\"traces/{name}\"]"))
    })?;
    let request = RecordRequest {
        program: located_program(program, configured).into_os_string(),
        arguments: table.arguments.iter().map(OsString::from).collect(),
        directory: table.directory.as_ref().map(|directory| configured.file.located(directory)),
        environment: table.environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        discard_output: true,
        input: scenario_input(table, configured)?,
        stop: scenario_rule(name, table, configured)?,
        ..RecordRequest::default()
    };
    Ok(RecordedScenario { name: name.to_owned(), request, output, status: table.status })
}
