//! `reorder record`: runs a program and writes the order in which its functions first execute.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use crate::cli::context::Context;
use crate::cli::ending_args::{EndingArguments, telling_when_long, warn_of_missed_text};
use crate::cli::record_scenarios::scenarios_to_record;
use crate::cli::scenarios_input::ConfigurationArguments;
use crate::exit_status::ExitStatus;
use reorder_base::error::{Error, Result};
use reorder_report::table::{counted, grouped};
use reorder_run::loaded_libraries::libraries_of_program;
use reorder_run::record::{self, LittleKnown, RecordOutcome, RecordRequest, TraceDirectory};
use reorder_system::mapped::map_image;
use reorder_system::stops::Ending;
use reorder_system::terminal;

const EXAMPLES: &str = "\
Examples:
  reorder record -o traces -- git status
  reorder record -o traces --runs 3 -- ./program --first-screen
  reorder record -o traces --blocks --passes 3 -- node script.js
  reorder record -o traces --image /usr/lib/libexample.so -- ./program
  reorder record -o traces --libraries -- ./program
  reorder record -o traces --until 'ready to accept' -- ./server --port 8080
  reorder record                     # all scenarios of reorder.toml, in place of their earlier recordings

Processes that a program forks without executing another one share its trace: a function counts once, when the first of \
them runs it. Traces accumulate in the directory. Input, output and exit status are those of the program.";

/// Run a program and record the order in which its functions first execute
///
/// Without a program, the scenarios of reorder.toml are run, and their traces replace earlier recordings in the first
/// directory that each scenario lists for traces.
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct RecordArguments {
    /// Directory for the traces; created if necessary
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Number of times to run the program
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Start the program N times for each recording. From the second start on it is stopped only in code that did not run
    /// before, so threads that work in the background, such as compilers, get further. What later starts add comes at the end
    /// of the trace. The program prints its output N times and must be able to run again
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    passes: u32,
    /// Without a program: record only this scenario of reorder.toml; repeatable
    #[arg(long = "scenario", value_name = "NAME", conflicts_with_all = ["output", "command"])]
    scenarios: Vec<String>,
    #[command(flatten)]
    configuration: ConfigurationArguments,
    /// Also trace this library, or this program that the program executes; repeatable
    #[arg(long = "image", value_name = "PATH")]
    images: Vec<PathBuf>,
    /// Also trace all libraries that the program loads at startup
    #[arg(long, requires = "command")]
    libraries: bool,
    /// Also record which basic blocks of the functions run, for layouts below the function; slower, because the program
    /// stops once in each basic block instead of once in each function
    #[arg(long)]
    blocks: bool,
    #[command(flatten)]
    ending: EndingArguments,
    /// Kill a run that takes longer than this [default: none]
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
    /// Let the program block or ignore SIGTRAP, which breakpoints use; slower, because it stops at each system call.
    /// Handlers of SIGTRAP work without this
    #[arg(long)]
    keep_sigtrap: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Records, writes the traces, and returns the program's exit status.
///
/// # Errors
/// When the program cannot be run or traced, or the traces cannot be written.
pub fn run(arguments: &RecordArguments, context: &Context) -> Result<ExitStatus> {
    let ([program, rest @ ..], Some(output)) = (arguments.command.as_slice(), &arguments.output) else {
        return match (&arguments.output, arguments.command.is_empty()) {
            (None, true) => record_scenarios(arguments, context),
            (None, false) => Err(Error::usage("no directory for the traces is given")
                .with_hint("name a directory: reorder record -o traces -- PROGRAM ARGUMENTS")),
            (Some(_), _) => Err(Error::usage("no program to record")
                .with_hint("reorder record -o traces -- PROGRAM ARGUMENTS")),
        };
    };
    terminal::leave_interrupts_to_program().map_err(|error| Error::io(&PathBuf::from(program), error))?;
    let first_run = record::next_run(output)?;
    let images = images(arguments, program)?;
    let _directory = TraceDirectory::prepare(output)?;
    let stop = arguments.ending.rule()?;
    let outcome = record::record(&RecordRequest {
        program: program.clone(),
        arguments: rest.to_vec(),
        images,
        runs: arguments.runs,
        passes: arguments.passes,
        first_run,
        keep_own_traps: arguments.keep_sigtrap,
        blocks: arguments.blocks,
        stop: stop.clone(),
        time_limit: arguments.time_limit.map(Duration::from_secs),
        ..RecordRequest::default()
    })?;
    let paths = record::write_traces(output, &outcome.traces)?;
    summarise(&outcome, context);
    warn_of_missed_text("the program", &stop, &outcome, &context.talk);
    note_script(program, &outcome, context);
    for path in &paths {
        context.talk.detail(&path.display().to_string());
    }
    Ok(ExitStatus::Program(outcome.ending.shell_status()))
}

/// The images to trace besides the program.
fn images(arguments: &RecordArguments, program: &OsStr) -> Result<Vec<PathBuf>> {
    let mut images = arguments.images.clone();
    if arguments.libraries {
        let path = record::find_program(program)?;
        let libraries = libraries_of_program(&path, &map_image(&path)?)?;
        images.extend(libraries.into_iter().map(|library| library.path));
    }
    Ok(images)
}

/// Records each scenario that has a program, its output discarded.
fn record_scenarios(arguments: &RecordArguments, context: &Context) -> Result<ExitStatus> {
    let configured = arguments.configuration.read(&context.talk)?;
    let starts = scenarios_to_record(&arguments.scenarios, &configured)?;
    let stop = arguments.ending.rule()?;
    let phase = context.talk.phase("record", starts.len() as u64);
    let mut failed = 0;
    for start in &starts {
        let request = RecordRequest {
            images: arguments.images.clone(),
            runs: arguments.runs,
            passes: arguments.passes,
            first_run: 1,
            keep_own_traps: arguments.keep_sigtrap,
            blocks: arguments.blocks,
            stop: if stop.is_set() { stop.clone() } else { start.request.stop.clone() },
            time_limit: arguments.time_limit.map(Duration::from_secs),
            ..start.request.clone()
        };
        let _directory = TraceDirectory::prepare(&start.output)?;
        let outcome = telling_when_long(context, &start.name, || record::record(&request))?;
        warn_of_unrecorded(&outcome, context);
        warn_of_missed_text(&format!("the scenario {}", start.name), &request.stop, &outcome, &context.talk);
        if outcome.traces.is_empty() {
            return Err(Error::usage(format!("the scenario {} ran no function of its program", start.name))
                .with_hint("is the program a script? name what it runs with --image"));
        }
        if outcome.ending != Ending::Exited(start.status) && !outcome.was_asked_to_end {
            let ended = match outcome.ending {
                Ending::Killed(signal) => format!("was killed by signal {signal}"),
                _ => format!("ended with exit status {}", outcome.ending.shell_status()),
            };
            failed += 1;
            let next = format!(
                "run it by hand; a run that fails early executes other code. If it is meant to end so, write status = {} below [scenario.{}]",
                outcome.ending.shell_status(),
                start.name
            );
            context
                .talk
                .warning(&format!("the scenario {} {ended} and is not recorded", start.name), Some(&next));
            continue;
        }
        // Only now: a program that cannot be run must not destroy earlier recordings.
        record::replace_recordings(&start.output, &outcome.traces)?;
        context.talk.detail(&format!("{}: {}", start.name, start.output.display()));
        phase.step();
    }
    phase.finish(&format!("{} of {}", starts.len() - failed, counted(starts.len() as u64, "scenario")));
    Ok(if failed > 0 { ExitStatus::Finding } else { ExitStatus::Success })
}

fn summarise(outcome: &RecordOutcome, context: &Context) {
    let statistics = &outcome.statistics;
    let traces = outcome.traces.len();
    let blocks = match statistics.first_blocks {
        0 => String::new(),
        count => format!(" of functions and {} of basic blocks", grouped(count)),
    };
    context.talk.note(&format!(
        "recorded {}{blocks} in {}",
        counted(statistics.first_executions, "first execution"),
        counted(traces as u64, "trace"),
    ));
    context.talk.detail(&format!(
        "recording cost {:.1} µs for each (median, without two process switches), and {:.1} ms to arm {:.1} MB",
        statistics.median_stop_nanoseconds() as f64 / 1e3,
        statistics.arming_nanoseconds as f64 / 1e6,
        statistics.armed_bytes as f64 / 1e6,
    ));
    warn_of_unrecorded(outcome, context);
    if let Ending::Killed(signal) = outcome.ending {
        let hint = "if this happens only while it is recorded: breakpoints unblock SIGTRAP and keep it from being ignored; add \
                    --keep-sigtrap, which is slower";
        let hint = (signal == libc::SIGTRAP).then_some(hint);
        if outcome.was_asked_to_end {
            return;
        }
        context.talk.warning(&format!("the program was killed by signal {signal}"), hint);
    }
}

/// Of a script it is what runs the script that was recorded.
fn note_script(program: &OsStr, outcome: &RecordOutcome, context: &Context) {
    let Some(path) = record::find_program(program).ok().filter(|path| is_script(path)) else { return };
    let recorded = outcome.traces.iter().find_map(|recorded| recorded.trace.image.path.as_deref());
    let recorded = recorded.map_or_else(|| "its interpreter".to_owned(), |path| path.display().to_string());
    context.talk.note(&format!(
        "{} is a script: the program that runs it was recorded, {recorded}; what the script runs is recorded with --image PROGRAM",
        path.display()
    ));
}

/// The warning about an image that describes little of its code, and what to do.
fn little_known(little: &LittleKnown) -> (String, &'static str) {
    let LittleKnown { path, unknown_percent, learned } = little;
    let cause = format!("{unknown_percent} % of the code of {} is in no known function", path.display());
    match learned {
        None => (
            format!("{cause}: what ran there is not recorded"),
            "record with --blocks, which learns functions of programs for x86-64, or record a build with symbols or unwind tables",
        ),
        Some(learned) => (
            format!(
                "{cause}; {} were learned there as they ran, and the rest is not recorded",
                counted(*learned as u64, "function")
            ),
            "to record all of it, take a build with symbols or unwind tables; reorder inspect says what is known",
        ),
    }
}

fn is_script(path: &Path) -> bool {
    let mut head = [0; 2];
    File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok() && head == *b"#!"
}

/// Says what ran without being recorded.
fn warn_of_unrecorded(outcome: &RecordOutcome, context: &Context) {
    let left = outcome.statistics.left_running;
    if left > 0 {
        let processes = if left == 1 { "one process".to_owned() } else { format!("{left} processes") };
        context.talk.warning(
            &format!(
                "{processes} kept running after the program ended: functions first executed after that are not recorded"
            ),
            Some("to record all of a daemon, run it in the foreground"),
        );
    }
    for little in &outcome.little_known {
        let (cause, cure) = little_known(little);
        context.talk.warning(&cause, Some(cure));
    }
    let count = outcome.statistics.forbidden_programs;
    if count > 0 {
        let programs = if count == 1 { "one program".to_owned() } else { format!("{count} programs") };
        context.talk.warning(
            &format!("{programs} ran without being recorded: this user may execute but not read them"),
            Some("record as a user who may read them, such as root, if their functions matter"),
        );
    }
}
