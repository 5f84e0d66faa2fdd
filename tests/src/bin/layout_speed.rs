//! One measurement of `scripts/bench/layout`, in a process of its own so that its peak memory is its own.
//!
//! `layout_speed make FUNCTIONS TRACES EVENTS` makes a synthetic program and stops: this is subtracted where a
//! tool can only measure whole processes. `order` orders it with the default strategy, `compress` also for compression.
//! Each prints wall and user
//! seconds of ordering, the peak of the process in MiB, and nanoseconds of processor time for each function and event.
//! `files … DIRECTORY` writes what LLVM's tools read: `profile.proftext` and `functions.s`. `profile … FILE` orders
//! the runs of such a file and prints the order, as `llvm-profdata order` does.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script's figures are its output")]

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use std::{env, fs};

use end_to_end::llvm_tools::profile_text;
use end_to_end::synthetic::Program;
use layout_algos::control::Control;
use layout_algos::ids::FunctionId;
use layout_algos::order::FunctionOrder;
use layout_algos::problem::{LayoutProblem, Trace};
use layout_algos::solve::{Auto, AutoOrder, CompressionAware, Orderer};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// What a layout that compresses better may cost: two per cent.
const BUDGET_PERMILLE: u32 = 20;

/// For a large program, the command computes no other budgets.
const BUDGETS: [u32; 1] = [BUDGET_PERMILLE];

/// How far deflate looks back.
const REACH: u64 = 32 << 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("layout_speed: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let usage = "arguments: make|order|compress|files|profile FUNCTIONS TRACES EVENTS [DIRECTORY|FILE]";
    let [what, numbers @ .., path] = arguments else { return Err(usage.to_owned()) };
    let (numbers, path) = match what.as_str() {
        "make" | "order" | "compress" => (&arguments[1..], None),
        _ => (numbers, Some(Path::new(path))),
    };
    let [functions, traces, events] = numbers else { return Err(usage.to_owned()) };
    let number = |text: &String| text.parse().map_err(|_| format!("{text} is no number; {usage}"));
    let program = Program { functions: number(functions)?, traces: number(traces)?, events: number(events)? };
    match (what.as_str(), path) {
        ("make", _) => measure(&program.problem()?, |_| ()),
        ("order", _) => measure(&program.problem()?, |problem| drop(Auto::default().order(problem))),
        ("compress", _) => {
            let fingerprints = program.fingerprints().ok_or("too many hashes")?;
            let problem = program.problem()?.with_fingerprints(fingerprints);
            measure(&problem.map_err(|error| error.to_string())?, order_for_compression)
        }
        ("files", Some(directory)) => write_files(&program.problem()?, directory),
        ("profile", Some(file)) => order_profile(program, file),
        _ => Err(usage.to_owned()),
    }
}

fn order_for_compression(problem: &LayoutProblem) {
    let control = Control::default();
    let AutoOrder { order, unseen, .. } = Auto::default().choose(problem, &control);
    let aware = CompressionAware { budget_permille: BUDGET_PERMILLE, reach: REACH, unseen };
    drop(aware.choose(problem, &order, &BUDGETS, &control));
}

fn measure(problem: &LayoutProblem, work: impl Fn(&LayoutProblem)) -> Result<(), String> {
    let user_before = user_seconds()?;
    let start = Instant::now();
    work(problem);
    let wall = start.elapsed().as_secs_f64();
    let user = user_seconds()? - user_before;
    let items = problem.function_count() + problem.traces().event_count();
    println!("{wall:.3} {user:.3} {} {:.1}", peak_mebibytes()?, user * 1e9 / items as f64);
    Ok(())
}

/// User time of all threads until now.
fn user_seconds() -> Result<f64, String> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(|error| error.to_string())?;
    Ok(usage.user_time().num_microseconds() as f64 / 1e6)
}

fn peak_mebibytes() -> Result<u64, String> {
    let status = fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak in the status")?;
    let kibibytes = line.split_whitespace().next().and_then(|number| number.parse::<u64>().ok());
    Ok(kibibytes.ok_or("no number in the peak")? / 1024)
}

fn write_files(problem: &LayoutProblem, directory: &Path) -> Result<(), String> {
    let write = |name: &str, text: String| {
        fs::write(directory.join(name), text).map_err(|error| format!("{name}: {error}"))
    };
    write("profile.proftext", profile_text(problem))?;
    // The sections are short: a linker then spends its time on their order, not on copying them.
    let mut source = String::from(".text\n.globl _start\n_start: ret\n");
    for function in 0..problem.function_count() {
        let _ = write!(
            source,
            ".section .text.f{function},\"ax\",@progbits\n.globl f{function}\n.type f{function},@function\n\
             f{function}: ret\n"
        );
    }
    write("functions.s", source)
}

fn order_profile(program: Program, file: &Path) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let problem = program.problem_with(&starts(&text)?)?;
    let order: FunctionOrder = Auto::default().order(&problem);
    let traced = problem.traced();
    let mut output = String::new();
    for function in order.iter().filter(|function| traced[function.index()]) {
        let _ = writeln!(output, "f{}", function.0);
    }
    io::stdout().write_all(output.as_bytes()).map_err(|error| error.to_string())
}

/// The runs of a profile as `files` writes it.
fn starts(text: &str) -> Result<Vec<Trace>, String> {
    let bad = || "not a profile of temporal traces".to_owned();
    let mut lines = text.lines().skip_while(|line| *line != ":temporal_prof_traces").skip(1);
    let count: usize = lines.next().and_then(|line| line.parse().ok()).ok_or_else(bad)?;
    let _seen = lines.next();
    (0..count)
        .map(|_| {
            let weight = lines.next().and_then(|line| line.parse().ok()).ok_or_else(bad)?;
            let names = lines.next().ok_or_else(bad)?.split(',').filter(|name| !name.is_empty());
            let number = |name: &str| name.strip_prefix('f').and_then(|digits| digits.parse().ok());
            let functions =
                names.map(|name| number(name).map(FunctionId)).collect::<Option<_>>().ok_or_else(bad)?;
            Ok(Trace { weight, functions })
        })
        .collect()
}
