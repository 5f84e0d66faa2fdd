//! Asks LLVM's own tools for an order, so that ours can be compared with it.
//!
//! The traces of a problem are written in LLVM's text form and given to the real `llvm-profdata order`, or
//! to the real `ld.lld` together with an object that has one section for each function. Functions are named by
//! number, `f0`, `f1`, and so on, in link order.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use layout_algos::ids::FunctionId;
use layout_algos::problem::LayoutProblem;
use md5::{Digest, Md5};
use object::{Object, ObjectSymbol};
use reorder_base::tool_versions::llvm;

use crate::process;

/// Time limit of one tool.
const LIMIT: Duration = Duration::from_secs(600);

/// The answer of a tool: the functions of all traces in its order, and how long it took.
#[derive(Clone, Debug)]
pub struct ToolOrder {
    /// Each traced function once.
    pub functions: Vec<FunctionId>,
    /// Wall-clock time of the tool, reading and writing included.
    pub elapsed: Duration,
}

/// The number by which LLVM's profiles know a name: the first eight bytes of its MD5, least significant first.
#[must_use]
pub fn name_key(name: &str) -> u64 {
    let digest = Md5::digest(name.as_bytes());
    digest.iter().take(8).rev().fold(0, |key, &byte| key << 8 | u64::from(byte))
}

/// The keys of the functions of `problem` as they are named here.
#[must_use]
pub fn name_keys(problem: &LayoutProblem) -> Vec<u64> {
    (0..problem.function_count()).map(|index| name_key(&format!("f{index}"))).collect()
}

/// The traces of `problem` in LLVM's text form, with a record for each traced function.
#[must_use]
pub fn profile_text(problem: &LayoutProblem) -> String {
    let traces = problem.traces();
    let mut text = format!(":ir\n:temporal_prof_traces\n{0}\n{0}\n", traces.len());
    for trace in traces.iter() {
        let _ = writeln!(text, "{}", trace.weight);
        for function in trace.functions {
            let _ = write!(text, "f{},", function.0);
        }
        text.push_str(if trace.functions.is_empty() { ",\n" } else { "\n" });
    }
    for (index, _) in problem.traced().iter().enumerate().filter(|(_, traced)| **traced) {
        let _ = write!(text, "\nf{index}\n1\n1\n1\n");
    }
    text
}

/// The order that `llvm-profdata order` computes from the traces. Files are made in `directory`.
///
/// # Errors
/// A sentence when the tool fails or its output is not one name a line.
pub fn llvm_profdata_order(problem: &LayoutProblem, directory: &Path) -> Result<ToolOrder, String> {
    let profile = directory.join("profile.proftext");
    fs::write(&profile, profile_text(problem)).map_err(|error| error.to_string())?;
    let (stdout, elapsed) = run(Command::new(llvm("llvm-profdata")).arg("order").arg(&profile))?;
    let names = stdout.lines().filter(|line| !line.starts_with('#'));
    let functions = names.map(function_of).collect::<Result<_, _>>()?;
    Ok(ToolOrder { functions, elapsed })
}

/// The order in which `ld.lld --bp-startup-sort=function` puts the traced functions. Files are made in `directory`.
///
/// # Errors
/// A sentence when a tool fails or a function is missing in its output.
pub fn lld_order(problem: &LayoutProblem, directory: &Path) -> Result<ToolOrder, String> {
    let [profile, source, input, output] =
        ["profile.proftext", "functions.s", "functions.o", "functions"].map(|name| directory.join(name));
    fs::write(&profile, profile_text(problem)).map_err(|error| error.to_string())?;
    fs::write(&source, one_section_each(problem)).map_err(|error| error.to_string())?;
    run(Command::new(llvm("clang")).arg("-c").arg(&source).arg("-o").arg(&input))?;
    let mut flag = std::ffi::OsString::from("--irpgo-profile=");
    flag.push(&profile);
    let mut link = Command::new(llvm("ld.lld"));
    link.arg("-shared").arg(flag).arg("--bp-startup-sort=function").arg(&input).arg("-o").arg(&output);
    let (_, elapsed) = run(&mut link)?;
    let bytes = fs::read(&output).map_err(|error| error.to_string())?;
    let file = object::File::parse(&*bytes).map_err(|error| error.to_string())?;
    let traced = problem.traced();
    let mut places = Vec::new();
    for symbol in file.dynamic_symbols() {
        let function = function_of(symbol.name().map_err(|error| error.to_string())?)?;
        if traced.get(function.index()).copied().unwrap_or(false) {
            places.push((symbol.address(), function));
        }
    }
    places.sort_unstable();
    let functions: Vec<FunctionId> = places.into_iter().map(|(_, function)| function).collect();
    if functions.len() != traced.iter().filter(|&&traced| traced).count() {
        return Err(format!("lld's output has {} of the traced functions", functions.len()));
    }
    Ok(ToolOrder { functions, elapsed })
}

fn one_section_each(problem: &LayoutProblem) -> String {
    let mut text = String::new();
    for (index, size) in problem.sizes().iter().enumerate() {
        let alignment = problem.alignment(FunctionId(index as u32));
        let _ = write!(
            text,
            ".section .text.f{index},\"ax\",@progbits\n.balign {alignment}\n.globl f{index}\n.type f{index},@function\n\
             f{index}:\n.zero {size}\n.size f{index}, {size}\n"
        );
    }
    text
}

fn function_of(name: &str) -> Result<FunctionId, String> {
    let number = name.strip_prefix('f').and_then(|digits| digits.parse().ok());
    number.map(FunctionId).ok_or_else(|| format!("{name:?} is no function of the profile"))
}

fn run(command: &mut Command) -> Result<(String, Duration), String> {
    let start = Instant::now();
    let outcome = process::run(command, LIMIT).map_err(|error| format!("{command:?}: {error}"))?;
    if !outcome.success() {
        return Err(format!("{command:?}\n{outcome}"));
    }
    Ok((outcome.stdout_text(), start.elapsed()))
}
