//! Compares what `reorder record` records of ripgrep with ripgrep's own temporal profile.
//!
//! Arguments: the plain build, the build with temporal profiling, the directory to search. Runs both on the same
//! search, with one thread and with as many as ripgrep takes. Exit status 1 when fewer than 98 % of the functions
//! that the profile reports and the plain build has were recorded, or when gdb sees one of the others run.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script's summary is its output")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use std::{env, fs};

use end_to_end::agreement::{Agreement, Symbols, agreement};
use end_to_end::breakpoints::executed;
use end_to_end::inlining::{Inlined, inlined};
use end_to_end::{process, workspace};
use object::{Object, ObjectSymbol, SymbolKind};
use reorder_base::tool_versions::llvm;
use reorder_trace::{Companions, Location, read_files};

/// One search or one reading of its profile.
const LIMIT: Duration = Duration::from_secs(300);

/// Share of the profile's functions that must be recorded.
const MIN_RECORDED: f64 = 0.98;

/// What the comparison needs to know about the plain build.
struct Plain {
    path: PathBuf,
    symbols: Symbols,
    inlined: Inlined,
    entry: u64,
}

/// One search, recorded by both tools.
struct Comparison {
    title: String,
    profile: usize,
    agreement: Agreement,
    /// Functions of the profile of which a function that ran contains a copy, and such a function: their out-of-line
    /// code need not run, or not as early.
    copied: BTreeMap<String, String>,
    /// Missing functions that gdb sees running.
    overlooked: Vec<String>,
}

fn main() -> ExitCode {
    match compare_all() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("ripgrep: {message}");
            ExitCode::from(2)
        }
    }
}

fn compare_all() -> Result<bool, String> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [plain, instrumented, directory] = &arguments[..] else {
        return Err("arguments: the plain build, the instrumented build, the directory to search".to_owned());
    };
    let plain = Plain::read(Path::new(plain))?;
    let mut comparisons = Vec::new();
    for words in [&["-j1", "-n", "fn"][..], &["-n", "fn"]] {
        let search: Vec<&str> = words.iter().copied().chain([directory.as_str()]).collect();
        comparisons.push(compare(
            &plain,
            Path::new(instrumented),
            &search,
            format!("rg {}", words.join(" ")),
        )?);
    }
    print_table(&comparisons);
    comparisons.iter().for_each(print_lists);
    Ok(comparisons.iter().all(Comparison::holds))
}

impl Plain {
    fn read(path: &Path) -> Result<Self, String> {
        let broken = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let bytes = fs::read(path).map_err(|error| broken(&error))?;
        let image = object::File::parse(&*bytes).map_err(|error| broken(&error))?;
        let mut symbols = Symbols::new();
        for symbol in
            image.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        {
            let name = symbol.name().map_err(|error| broken(&error))?;
            symbols.entry(root(name).to_owned()).or_default().insert(symbol.address());
        }
        let entry = symbols.get("_start").and_then(BTreeSet::first).copied();
        Ok(Self {
            path: path.to_path_buf(),
            inlined: inlined(&image).map_err(|error| broken(&error))?,
            entry: entry.ok_or_else(|| broken(&"no symbol _start"))?,
            symbols,
        })
    }
}

/// The name without the suffix of local functions that link-time optimisation made global.
fn root(name: &str) -> &str {
    name.split_once(".llvm.").map_or(name, |(root, _)| root)
}

fn compare(plain: &Plain, instrumented: &Path, search: &[&str], title: String) -> Result<Comparison, String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let profile = profile_trace(instrumented, search, scratch.path())?;
    let recorded = recorded_trace(&plain.path, search, &scratch.path().join("traces"))?;
    let agreement = agreement(&profile, &recorded, &plain.symbols);

    let addresses = |name: &String| plain.symbols.get(name).into_iter().flatten().copied();
    let wanted: BTreeSet<u64> = agreement.missing.iter().flat_map(addresses).collect();
    let mut run = Command::new(&plain.path);
    run.args(search);
    let hits = executed(&run, plain.entry, &wanted)?;
    let overlooked = agreement
        .missing
        .iter()
        .filter(|name| addresses(name).any(|at| hits.contains(&at)))
        .cloned()
        .collect();

    let container = |name: &String| {
        let containers = plain.inlined.get(name)?;
        let ran = recorded.iter().find(|address| containers.contains(address))?;
        let named = plain.symbols.iter().find(|(_, addresses)| addresses.contains(ran));
        Some(named.map_or_else(|| format!("{ran:#x}"), |(name, _)| name.clone()))
    };
    Ok(Comparison {
        title,
        profile: profile.len(),
        copied: profile.iter().filter_map(|name| Some((name.clone(), container(name)?))).collect(),
        overlooked,
        agreement,
    })
}

/// The functions that the instrumented build's profile of one run lists, in order of first execution.
fn profile_trace(instrumented: &Path, search: &[&str], scratch: &Path) -> Result<Vec<String>, String> {
    let (raw, indexed) = (scratch.join("run.profraw"), scratch.join("run.profdata"));
    output_of(Command::new(instrumented).args(search).env("LLVM_PROFILE_FILE", &raw))?;
    let profdata = || Command::new(llvm("llvm-profdata"));
    // By default traces are cut at 10 000 functions, including those of the reservoir.
    output_of(
        profdata()
            .args(["merge", "--temporal-profile-max-trace-length=1000000", "-o"])
            .arg(&indexed)
            .arg(&raw),
    )?;
    let text = output_of(profdata().args(["show", "--temporal-profile-traces"]).arg(&indexed))?;
    let lines = text.lines().skip_while(|line| !line.trim_start().starts_with("Temporal Profile Trace 0"));
    // A local function's name follows that of its compilation unit and a semicolon.
    let names = lines.skip(1).map(|line| root(line.trim().rsplit(';').next().unwrap_or_default()));
    let mut seen = BTreeSet::new();
    let names: Vec<String> =
        names.filter(|name| !name.is_empty() && seen.insert(name.to_string())).map(str::to_owned).collect();
    if names.is_empty() { Err(format!("the profile holds no trace\n{text}")) } else { Ok(names) }
}

/// The addresses that `reorder record` lists for one run, in order of first execution.
fn recorded_trace(plain: &Path, search: &[&str], directory: &Path) -> Result<Vec<u64>, String> {
    output_of(workspace::reorder().args(["record", "-o"]).arg(directory).arg("--").arg(plain).args(search))?;
    let entries = fs::read_dir(directory).map_err(|error| error.to_string())?;
    let files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    let traces = read_files(&files, &Companions::default()).map_err(|error| error.to_string())?.traces;
    let [trace] = &traces[..] else { return Err(format!("{} traces instead of one", traces.len())) };
    let addresses = trace.events.iter().filter_map(|event| match event.location {
        Location::Image(address) => Some(address.0),
        _ => None,
    });
    Ok(addresses.collect())
}

fn output_of(command: &mut Command) -> Result<String, String> {
    let outcome = process::run(command, LIMIT).map_err(|error| format!("{command:?}: {error}"))?;
    if outcome.success() { Ok(outcome.stdout_text()) } else { Err(format!("{command:?}\n{outcome}")) }
}

impl Comparison {
    fn recorded_share(&self) -> f64 {
        self.agreement.recorded.len() as f64 / self.agreement.with_symbol().max(1) as f64
    }

    /// How many of `names` a function that ran contains copies of.
    fn copied(&self, names: &[String]) -> usize {
        names.iter().filter(|name| self.copied.contains_key(*name)).count()
    }

    /// The others.
    fn uncopied(&self, names: &[String]) -> usize {
        names.len() - self.copied(names)
    }

    fn holds(&self) -> bool {
        self.recorded_share() >= MIN_RECORDED && self.overlooked.is_empty()
    }
}

fn print_table(comparisons: &[Comparison]) {
    let row = |title: &str, cell: &dyn Fn(&Comparison) -> String| {
        print!("{title:<58}");
        comparisons.iter().for_each(|comparison| print!("{:>18}", cell(comparison)));
        println!();
    };
    let share =
        |part: usize, whole: usize| format!("{part} ({:.2} %)", 100.0 * part as f64 / whole.max(1) as f64);
    row("", &|c| c.title.clone());
    row("functions in the profile's trace", &|c| c.profile.to_string());
    row("  without a symbol in the plain build", &|c| c.agreement.without_symbol.len().to_string());
    row("  with a symbol in the plain build", &|c| c.agreement.with_symbol().to_string());
    row("    recorded", &|c| share(c.agreement.recorded.len(), c.agreement.with_symbol()));
    row("    missing, inlined into a function that ran", &|c| c.copied(&c.agreement.missing).to_string());
    row("    missing, no such copy known", &|c| c.uncopied(&c.agreement.missing).to_string());
    row("    missing, but executed according to gdb", &|c| c.overlooked.len().to_string());
    row("  with a symbol, not inlined into any function that ran", &|c| {
        (c.uncopied(&c.agreement.recorded) + c.uncopied(&c.agreement.missing)).to_string()
    });
    row("    recorded", &|c| {
        let recorded = c.uncopied(&c.agreement.recorded);
        share(recorded, recorded + c.uncopied(&c.agreement.missing))
    });
    row("recorded, one for each address", &|c| c.agreement.ordered.len().to_string());
    row("  in the profile's order (longest common subsequence)", &|c| {
        share(c.agreement.ordered.len() - c.agreement.moved.len(), c.agreement.ordered.len())
    });
    row("  elsewhere, inlined into a function that ran", &|c| c.copied(&c.agreement.moved).to_string());
    row("  elsewhere, no such copy known", &|c| c.uncopied(&c.agreement.moved).to_string());
    row("  neighbours in the same order", &|c| {
        share(c.agreement.ordered_neighbours, c.agreement.ordered.len().saturating_sub(1))
    });
}

fn print_lists(comparison: &Comparison) {
    let agreement = &comparison.agreement;
    for (what, names) in [("missing", &agreement.missing), ("elsewhere in the order", &agreement.moved)] {
        println!("\n{}: {what}", comparison.title);
        for name in names {
            let reason = match comparison.copied.get(name) {
                _ if comparison.overlooked.contains(name) => "OVERLOOKED: gdb sees it run".to_owned(),
                Some(container) => format!("inlined into {container}"),
                None => "no copy known".to_owned(),
            };
            println!("  {name}: {reason}");
        }
    }
}
