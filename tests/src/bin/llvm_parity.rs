//! Compares our LLVM strategies with LLVM's own tools on recorded runs of real programs.
//!
//! Arguments: directories with an `image` and its traces in `train`. Prints a table: how many traced functions are
//! at the same position in both orders, the pages that the runs touch with each, and the time of each (that of
//! the tools includes reading and writing files). Exit status 1 when a page score differs by more than 0.5 %.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script's summary is its output")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, fs};

use end_to_end::llvm_tools::{ToolOrder, lld_order, llvm_profdata_order, name_keys};
use layout_algos::ids::FunctionId;
use layout_algos::order::FunctionOrder;
use layout_algos::problem::{LayoutProblem, Trace};
use layout_algos::score::{FaultModel, positions};
use layout_algos::solve::{LldPartitioning, LlvmProfdata, Orderer};
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_trace::{Companions, ImageIdentity, read_files, resolve};

/// How far apart the page scores may be.
const TOLERANCE: f64 = 0.005;

/// One tool compared with ours.
struct Comparison {
    same: usize,
    pages: [u64; 2],
    elapsed: [Duration; 2],
}

fn main() -> ExitCode {
    println!(
        "{:<16} {:>9} {:>6} {:<14} {:>10} {:>9} {:>9} {:>9} {:>9}",
        "program", "functions", "traces", "tool", "same place", "its pages", "our pages", "its ms", "our ms"
    );
    let mut is_close = true;
    for directory in env::args_os().skip(1).map(PathBuf::from) {
        match compare(&directory) {
            Ok(close) => is_close &= close,
            Err(message) => {
                eprintln!("{}: {message}", directory.display());
                return ExitCode::from(2);
            }
        }
    }
    if is_close { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn compare(directory: &Path) -> Result<bool, String> {
    let problem = problem(directory)?;
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let keys = name_keys(&problem);
    let rows = [
        (
            "llvm-profdata",
            llvm_profdata_order(&problem, scratch.path())?,
            &LlvmProfdata { keys } as &dyn Orderer,
        ),
        ("lld", lld_order(&problem, scratch.path())?, &LldPartitioning::default()),
    ];
    let mut is_close = true;
    for (name, tool, orderer) in rows {
        let row = comparison(&problem, &tool, orderer);
        let [theirs, ours] = row.pages;
        let [their_time, our_time] = row.elapsed.map(|elapsed| elapsed.as_secs_f64() * 1000.0);
        println!(
            "{:<16} {:>9} {:>6} {name:<14} {:>9}% {theirs:>9} {ours:>9} {their_time:>9.0} {our_time:>9.0}",
            directory.file_name().unwrap_or_default().to_string_lossy(),
            tool.functions.len(),
            problem.traces().len(),
            100 * row.same / tool.functions.len().max(1),
        );
        is_close &= ours.abs_diff(theirs) as f64 <= TOLERANCE * theirs as f64;
    }
    Ok(is_close)
}

fn comparison(problem: &LayoutProblem, tool: &ToolOrder, orderer: &dyn Orderer) -> Comparison {
    let start = Instant::now();
    let ours = orderer.order(problem);
    let elapsed = [tool.elapsed, start.elapsed()];
    let same = ours.iter().zip(&tool.functions).filter(|(ours, theirs)| ours == *theirs).count();
    let theirs = FunctionOrder::with_rest(tool.functions.iter().copied(), problem.function_count() as u32);
    Comparison { same, pages: [theirs, ours].map(|order| pages(problem, &order)), elapsed }
}

/// 4 KiB pages that the runs touch, each run by itself.
fn pages(problem: &LayoutProblem, order: &FunctionOrder) -> u64 {
    let spans = positions(problem, order);
    let faults = |functions: &[FunctionId]| {
        let touched = functions.iter().map(|function| spans[function.index()]);
        FaultModel::Pages { size: 4096 }.faults(touched).total()
    };
    problem.traces().iter().map(|trace| faults(trace.functions)).sum()
}

fn problem(directory: &Path) -> Result<LayoutProblem, String> {
    let path = directory.join("image");
    let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let file = ElfFile::parse(&bytes).map_err(|error| error.to_string())?;
    let functions = ElfFunctions::collect(&file).map_err(|error| error.to_string())?.table;
    let traces = read_files(&[directory.join("train")], &Companions::default())
        .map_err(|error| error.to_string())?
        .traces;
    let resolved = resolve(&traces, &functions, &ImageIdentity::of(&path, file.build_id()))
        .map_err(|error| error.to_string())?;
    let traces: Vec<Trace> = resolved
        .traces
        .iter()
        .map(|trace| Trace {
            weight: trace.weight.max(1),
            functions: trace.functions.iter().map(|function| FunctionId(function.0)).collect(),
        })
        .collect();
    let sizes = functions.iter().map(|(_, function)| function.size()).collect();
    LayoutProblem::new(sizes, &traces).map_err(|error| error.to_string())
}
