//! The flags for programs that do not end by themselves: servers, and what waits for a user.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::context::Context;
use crate::cli::scenarios_input::Configured;
use crate::cli::talk::Talk;
use reorder_base::error::{Error, Result};
use reorder_layout::configuration::ScenarioTable;
use reorder_run::record::RecordOutcome;
use reorder_run::stop_rule::StopRule;

/// When runs are asked to end.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct EndingArguments {
    /// Send SIGTERM to each run after this many seconds, and SIGKILL if it is still running 10 s later: for servers and for
    /// programs that wait for a user
    #[arg(long, value_name = "SECONDS")]
    stop_after: Option<f64>,
    /// End each run as soon as it has printed this text on standard output or standard error, in the same way
    #[arg(long, value_name = "TEXT")]
    until: Option<String>,
}

impl EndingArguments {
    /// The rule for runs.
    ///
    /// # Errors
    /// An invalid time, or an empty text.
    pub(crate) fn rule(&self) -> Result<StopRule> {
        let after = self.stop_after.map(Duration::try_from_secs_f64).transpose().map_err(|_| {
            Error::usage("--stop-after needs a number of seconds that is not negative")
                .with_hint("such as --stop-after 2 or --stop-after 0.5")
        })?;
        if self.until.as_ref().is_some_and(String::is_empty) {
            return Err(Error::usage("--until needs a text that the program prints")
                .with_hint("such as --until 'ready to accept connections'"));
        }
        Ok(StopRule { after, until: self.until.clone() })
    }
}

/// Says that `run` ended before it printed what it was to be ended for: then something else was recorded than the user means.
/// Gives whether that is so.
pub(super) fn warn_of_missed_text(run: &str, stop: &StopRule, outcome: &RecordOutcome, talk: &Talk) -> bool {
    let Some(text) = stop.until.as_ref().filter(|_| outcome.misses_text) else { return false };
    let cause = match outcome.was_asked_to_end {
        true => format!("{run} never printed `{text}`"),
        false => format!("{run} ended by itself with {} and never printed `{text}`", outcome.ending),
    };
    let next = "run it by hand with these arguments, as this user: only what it ran until then is recorded";
    talk.warning(&cause, Some(next));
    true
}

/// The rule of the scenario called `name` in `reorder.toml`.
///
/// # Errors
/// An invalid time, or an empty text.
pub(super) fn scenario_rule(name: &str, table: &ScenarioTable, configured: &Configured) -> Result<StopRule> {
    let mistake =
        |cause: &str, hint: &str| configured.file.mistake(&format!("[scenario.{name}] {cause}"), hint);
    let after = table.stop_after.map(Duration::try_from_secs_f64).transpose();
    let after = after
        .map_err(|_| mistake("has a stop-after that is no number of seconds", "such as stop-after = 0.5"))?;
    if table.until.as_ref().is_some_and(String::is_empty) {
        return Err(mistake("has an empty until", "such as until = \"ready to accept connections\""));
    }
    Ok(StopRule { after, until: table.until.clone() })
}

/// The file for standard input of a scenario.
///
/// # Errors
/// A file that cannot be read, before any run.
pub(super) fn scenario_input(table: &ScenarioTable, configured: &Configured) -> Result<Option<PathBuf>> {
    let input = InputArgument { input: table.stdin.as_ref().map(|input| configured.file.located(input)) };
    input.check()?;
    Ok(input.input)
}

/// The file for standard input.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct InputArgument {
    /// Standard input of each run [default: empty]
    #[arg(long = "stdin", value_name = "FILE")]
    pub input: Option<PathBuf>,
}

impl InputArgument {
    /// # Errors
    /// A file that cannot be read, before any run.
    pub(crate) fn check(&self) -> Result<()> {
        let Some(input) = &self.input else { return Ok(()) };
        std::fs::File::open(input).map(drop).map_err(|error| Error::io(input, error))
    }
}

/// After this time somebody wonders whether the program hangs.
const LONG: Duration = Duration::from_secs(10);

/// Does `work`, which runs a program as `shown`; says once that it is still running.
pub(crate) fn telling_when_long<Outcome>(
    context: &Context,
    shown: &str,
    work: impl FnOnce() -> Outcome,
) -> Outcome {
    let (done, waiting) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if waiting.recv_timeout(LONG) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                context.talk.note(&format!(
                    "`{shown}` is still running after {} s; a program that does not end by itself needs --stop-after SECONDS or \
                     --until 'a text that it prints'",
                    LONG.as_secs()
                ));
            }
        });
        let outcome = work();
        drop(done);
        outcome
    })
}
