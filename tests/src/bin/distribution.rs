//! Permutes every installed program and counts those that behave the same.
//!
//! Arguments: `[--at-least N] [--limit N] [--part N/M] [--seed N] [--blocks] [--libraries | --files DIRECTORY]
//! [--table FILE] [DIRECTORY…]`. `--part 2/5` takes every fifth program, from the second on. With `--blocks` no function
//! moves, but a random half of all basic blocks is copied. With `--libraries` each permuted program also runs on permuted C
//! and C++ libraries; with `--files` it is not asked for its version and its help but works on all files of that directory.
//! Writes one line per program to the table and a summary to stdout. Exit status 1 when a program differs, `reorder` fails, or
//! fewer than N were permuted. `REORDER` names the command (default: built here).

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script's summary is its output")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use end_to_end::distribution::{
    Examination, Libraries, Permutation, Permuted, Verdict, command_under_test, examine, programs,
    reason_to_skip,
};
use end_to_end::works;
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

struct Options {
    at_least: usize,
    limit: usize,
    part: (usize, usize),
    permutation: Permutation,
    libraries: bool,
    files: Option<PathBuf>,
    table: PathBuf,
    roots: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let options = match options(env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("distribution: {message}");
            return ExitCode::from(2);
        }
    };
    command_under_test();
    let all = programs(&options.roots);
    let (part, parts) = options.part;
    let all = all.into_iter().skip(part - 1).step_by(parts);
    let (skipped, mut chosen): (Vec<_>, Vec<_>) = all.partition(|program| reason_to_skip(program).is_some());
    chosen.truncate(options.limit);
    let libraries = match options.libraries.then(|| Libraries::permuted(options.permutation)).transpose() {
        Ok(libraries) => libraries,
        Err(error) => {
            eprintln!("distribution: {error}");
            return ExitCode::from(2);
        }
    };
    let examined: Vec<std::io::Result<Examination>> =
        chosen.par_iter().map(|program| one(program, &options, libraries.as_ref())).collect();
    let examinations: Vec<Examination> = match examined.into_iter().collect() {
        Ok(examinations) => examinations,
        Err(error) => {
            eprintln!("distribution: {error}");
            return ExitCode::from(2);
        }
    };
    if let Err(error) = fs::write(&options.table, table(&skipped, &examinations)) {
        eprintln!("distribution: {}: {error}", options.table.display());
        return ExitCode::from(2);
    }
    summary(&skipped, &examinations, &options)
}

fn one(program: &Path, options: &Options, libraries: Option<&Libraries>) -> std::io::Result<Examination> {
    match &options.files {
        Some(files) => works::examine(program, options.permutation, files),
        None => examine(program, options.permutation, libraries),
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        at_least: 400,
        limit: usize::MAX,
        part: (1, 1),
        permutation: Permutation { what: Permuted::Functions, seed: 1 },
        libraries: false,
        files: None,
        table: PathBuf::from("target/distribution.tsv"),
        roots: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        let number = |text: String| text.parse::<usize>().map_err(|_| format!("not a number: {text}"));
        match argument.as_str() {
            "--at-least" => options.at_least = number(value()?)?,
            "--limit" => options.limit = number(value()?)?,
            "--part" => {
                let text = value()?;
                let (part, parts) = text.split_once('/').ok_or_else(|| format!("not N/M: {text}"))?;
                options.part = (number(part.to_owned())?.max(1), number(parts.to_owned())?.max(1));
            }
            "--seed" => options.permutation.seed = number(value()?)? as u64,
            "--blocks" => options.permutation.what = Permuted::Blocks,
            "--libraries" => options.libraries = true,
            "--files" => options.files = Some(PathBuf::from(value()?)),
            "--table" => options.table = PathBuf::from(value()?),
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
            directory => options.roots.push(PathBuf::from(directory)),
        }
    }
    if options.roots.is_empty() {
        options.roots = ["/usr/bin", "/usr/sbin", "/usr/lib", "/usr/libexec"].map(PathBuf::from).into();
    }
    Ok(options)
}

fn table(skipped: &[PathBuf], examinations: &[Examination]) -> String {
    let mut text = String::from("program\tverdict\tfunctions\tmovable\tmoved\tworks\tanswers\tdetail\n");
    for program in skipped {
        let reason = reason_to_skip(program).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}\tskipped\t0\t0\t0\t0\t0\t{reason}", program.display());
    }
    for examination in examinations {
        let (verdict, detail) = match &examination.verdict {
            Verdict::Same => ("same", ""),
            Verdict::Varies(detail) => ("varies", detail.as_str()),
            Verdict::Refused(code) => ("refused", code.as_str()),
            Verdict::Different(detail) => ("different", detail.as_str()),
            Verdict::Failed(detail) => ("failed", detail.as_str()),
        };
        let _ = writeln!(
            text,
            "{}\t{verdict}\t{}\t{}\t{}\t{}\t{}\t{}",
            examination.program.display(),
            examination.functions,
            examination.movable,
            examination.moved,
            examination.works,
            examination.answers,
            detail.replace('\n', "\\n").replace('\t', " ")
        );
    }
    text
}

fn summary(skipped: &[PathBuf], examinations: &[Examination], options: &Options) -> ExitCode {
    let mut refused: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut same, mut varies, mut wrong) = (0, 0, 0);
    for examination in examinations {
        match &examination.verdict {
            Verdict::Same => same += 1,
            Verdict::Varies(_) => varies += 1,
            Verdict::Refused(code) => *refused.entry(code).or_default() += 1,
            Verdict::Different(detail) | Verdict::Failed(detail) => {
                wrong += 1;
                println!("{}: {detail}", examination.program.display());
            }
        }
    }
    let sum = |value: fn(&Examination) -> u64| examinations.iter().map(value).sum::<u64>();
    let functions = sum(|examination| examination.functions);
    let percent = |part: u64| if functions == 0 { 0.0 } else { 100.0 * part as f64 / functions as f64 };
    let sum_of = |value: fn(&Examination) -> usize| examinations.iter().map(value).sum::<usize>();
    println!(
        "{} works; {} programs did well with at least two different results",
        sum_of(|examination| examination.works),
        examinations.iter().filter(|examination| examination.answers > 1).count()
    );
    let (movable, moved) = (sum(|examination| examination.movable), sum(|examination| examination.moved));
    println!(
        "{} programs permuted: {same} same, {varies} vary by themselves, {wrong} wrong; {refused:?} refused, {} skipped",
        same + varies + wrong,
        skipped.len()
    );
    println!(
        "{functions} functions: {movable} movable ({:.2} %), {moved} moved ({:.2} %); table in {}",
        percent(movable),
        percent(moved),
        options.table.display()
    );
    if wrong > 0 || same + varies < options.at_least { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
