//! The flags that make `apply` run original and result before anything is written, and those runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::cli::context::Context;
use crate::cli::ending_args::{EndingArguments, telling_when_long};
use crate::wheel::is_archive;
use reorder_base::error::{Error, Result};
use reorder_base::hint::RunPurpose;
use reorder_image::elf::file::ElfFile;
use reorder_image::macho::is_macho;
use reorder_report::table::counted;
use reorder_run::check::{CheckRequest, CheckedRun, Trial, check};
use reorder_run::processor;
use reorder_run::runnable::is_library;
use reorder_run::stop_rule::StopRule;

/// The runs that compare original and result.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArguments {
    /// Run IMAGE and the result with these arguments, quoted as for a shell, and compare output, exit status and signals
    /// before anything is written; repeatable. IMAGE runs at least twice: choose runs that can be repeated
    #[arg(long = "check", value_name = "ARGS", allow_hyphen_values = true)]
    runs: Vec<String>,
    /// Standard input of each checked run [default: empty]
    #[arg(long = "check-input", value_name = "FILE", requires = "runs")]
    input: Option<PathBuf>,
    #[command(flatten)]
    ending: EndingArguments,
    /// Kill a checked run that takes longer than this
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    time_limit: u64,
}

impl CheckArguments {
    /// Whether any run is requested.
    pub(crate) fn is_asked_for(&self) -> bool {
        !self.runs.is_empty()
    }

    /// The file that the runs read as standard input.
    pub(crate) fn input(&self) -> Option<&Path> {
        self.input.as_deref()
    }

    /// Refuses, before any work, requested runs that are impossible.
    ///
    /// # Errors
    /// Arguments with unfinished quotation, and images that are not programs for this processor.
    pub(crate) fn refuse_unless_runnable(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        if !self.is_asked_for() {
            return Ok(());
        }
        self.ending.rule()?;
        self.runs.iter().try_for_each(|run| words("--check", run).map(drop))?;
        let refused = |what: &str, hint: &str| {
            Err(Error::usage(format!("--check runs a program, and this is {what}"))
                .in_file(path)
                .with_hint(hint))
        };
        if is_macho(bytes) {
            return refused(
                "a Mach-O image, which this system cannot run",
                "leave out --check, and compare both where they run",
            );
        }
        if is_archive(bytes) {
            return refused(
                "a wheel",
                "leave out --check, and run the tests of the package with the new wheel",
            );
        }
        processor::check_program(path, RunPurpose::Check)?;
        match ElfFile::parse(bytes) {
            Ok(file) if is_library(&file) => refused(
                "a library",
                "leave out --check, and run a program that loads the result; or give the program, with --set DIR",
            ),
            _ => Ok(()),
        }
    }

    /// Runs all of them.
    ///
    /// # Errors
    /// The first run in which the result behaves differently, or that cannot be compared.
    pub(crate) fn run(
        &self,
        original: &Path,
        trial: &Trial<'_>,
        context: &Context,
    ) -> Result<Vec<CheckedRun>> {
        let runs = self.runs.iter().map(|run| Ok((run.as_str(), words("--check", run)?)));
        let runs = runs.collect::<Result<Vec<_>>>()?;
        let stop = self.ending.rule()?;
        check_all(&self.request(original, trial, &stop), &runs, context)
    }

    fn request<'run>(
        &'run self,
        original: &'run Path,
        trial: &'run Trial<'run>,
        stop: &'run StopRule,
    ) -> CheckRequest<'run> {
        CheckRequest {
            original,
            trial,
            input: self.input(),
            stop,
            time_limit: Duration::from_secs(self.time_limit),
        }
    }
}

/// Checks each of `runs`: the arguments as they were given, and their words.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_all(
    request: &CheckRequest<'_>,
    runs: &[(&str, Vec<OsString>)],
    context: &Context,
) -> Result<Vec<CheckedRun>> {
    let phase = context.talk.phase("check", runs.len() as u64);
    let mut checked = Vec::new();
    for (shown, words) in runs {
        let run = || check(request, shown, words);
        let outcome = telling_when_long(context, shown, run);
        checked.push(outcome.map_err(|error| error.in_file(request.original))?);
        phase.step();
    }
    phase.finish(&format!("{} as before", counted(runs.len() as u64, "run")));
    Ok(checked)
}

/// Splits a line that is quoted as for a shell into words; `flag` is the option that it was given to.
///
/// # Errors
/// Unfinished quotation.
pub(crate) fn words(flag: &str, line: &str) -> Result<Vec<OsString>> {
    let words = shlex::split(line).ok_or_else(|| {
        Error::usage(format!("{flag} {line}: a quotation mark or an escaped character is missing"))
            .with_hint(format!("quote as for a shell: {flag} 'open \"my file\"'"))
    })?;
    Ok(words.into_iter().map(OsString::from).collect())
}
