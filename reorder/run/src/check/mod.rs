//! Checks that the result does what the original does: both are run, and what a caller can observe of them is compared.
//!
//! In: the original, a [`Trial`] with the result, and arguments. Out: a [`CheckedRun`], or an error that says what differs.
//! Both run with the same arguments, name, input, environment and directory.
//!
//! The original runs twice before the result does: in its own place, and as a copy in the place where the result is tried,
//! to separate what depends on the place from what depends on the layout. What differs between runs of the original alone,
//! such as times and process numbers, is not compared. Where the result differs the original is run again, so that a
//! clock that just ticked is not taken for a difference; what then differs is not caused by the original itself.

mod compare;
mod difference;
mod report;
mod run;
mod trial;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use crate::stop_rule::StopRule;
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;

use compare::{Compared, Seen};
use difference::Difference;
pub use report::CheckedRun;
use run::{End, Launch, Observed};
pub use trial::{Trial, TrialFile, Version};

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct CheckRequest<'run> {
    /// The program as it was, in its place.
    pub original: &'run Path,
    /// Where the result is tried.
    pub trial: &'run Trial<'run>,
    /// Standard input; empty unless given.
    pub input: Option<&'run Path>,
    /// When runs that do not end by themselves are asked to end.
    pub stop: &'run StopRule,
    /// A run of the original that takes longer cannot be compared.
    pub time_limit: Duration,
}

/// How often the original is run again where the result differs.
const FURTHER_RUNS: usize = 5;

/// The time limit of the result is extended by this many times the original's longest run: a busy system is no hang.
const PATIENCE: u32 = 10;

/// Runs original and result with `arguments`; messages show them as `shown`.
///
/// # Errors
/// [`reorder_base::error::ErrorKind::Verification`] when the result does something else; programs that cannot be run, and
/// originals that do not always end the same way.
pub fn check(request: &CheckRequest<'_>, shown: &str, arguments: &[OsString]) -> Result<CheckedRun> {
    let original = |program: &Path, environment: &[(OsString, OsString)]| {
        run::run(&launch(request, program, environment, arguments, request.time_limit))
    };
    let in_place = original(request.original, &[])?;
    ended(shown, &in_place, request.time_limit)?;
    let copy = || {
        request.trial.place(Version::Original)?;
        original(request.trial.program(), request.trial.environment())
    };
    let mut seen = Seen::of(copy()?, request.stop.is_set());
    if seen.reference().end != in_place.end {
        return Err(unlike(shown, &in_place, seen.reference(), Some(request.trial.program())));
    }
    seen.add(&in_place);
    let longest = in_place.took.max(seen.reference().took);
    let limit = request.time_limit.saturating_add(longest.saturating_mul(PATIENCE));
    request.trial.place(Version::Result)?;
    let result =
        run::run(&launch(request, request.trial.program(), request.trial.environment(), arguments, limit))?;
    let mut compared = seen.compare(&result);
    for _ in 0..FURTHER_RUNS {
        if compared.difference.is_none() {
            break;
        }
        let again = copy()?;
        if again.end != seen.reference().end {
            return Err(unlike(shown, seen.reference(), &again, None));
        }
        seen.add(&again);
        compared = seen.compare(&result);
    }
    match compared {
        Compared { difference: Some(difference), .. } => Err(explained(shown, &difference)),
        Compared { difference: None, unstable_lines } => {
            Ok(CheckedRun::of(shown, seen.reference(), seen.runs(), unstable_lines))
        }
    }
}

fn launch<'run>(
    request: &CheckRequest<'run>,
    program: &'run Path,
    environment: &'run [(OsString, OsString)],
    arguments: &'run [OsString],
    time_limit: Duration,
) -> Launch<'run> {
    Launch {
        program,
        name: request.original.as_os_str(),
        arguments,
        input: request.input,
        environment,
        stop: request.stop,
        time_limit,
    }
}

/// Only a run that ends can be compared.
fn ended(shown: &str, original: &Observed, limit: Duration) -> Result<()> {
    let message = match original.end {
        End::Ended(_) => return Ok(()),
        End::TooLate => format!("`{shown}`: the original is still running after {} s", limit.as_secs()),
        End::TooMuch => {
            format!("`{shown}`: the original prints more than {} MiB", run::MAX_OUTPUT_BYTES >> 20)
        }
    };
    Err(Error::usage(message).with_hint(Hint::MoreTimeToCheck))
}

/// Two runs of the original end differently, so the end of the result cannot be compared.
fn unlike(shown: &str, one: &Observed, other: &Observed, place: Option<&Path>) -> Error {
    let (where_to, hint) = match place.and_then(Path::parent) {
        Some(folder) => (
            format!(" as a copy in {}", folder.display()),
            "nothing was written; if the program needs files from its own directory, write the result there; else check a run \
             that always ends alike",
        ),
        None => (" the next time".to_owned(), "nothing was written; check a run that always ends alike"),
    };
    Error::usage(format!("`{shown}`: the original {}, and {}{where_to}", one.end, other.end)).with_hint(hint)
}

fn explained(shown: &str, difference: &Difference) -> Error {
    let report = match difference.is_failure() {
        true => Hint::ReportCrash,
        false => Hint::from(
            "nothing was written; a program that prints the addresses of its functions may differ; any other difference is a \
             defect of reorder: please report this image and these arguments",
        ),
    };
    Error::verification(format!("`{shown}`: {difference}")).with_hint(report)
}
