//! Scores layouts of a program of `scripts/layout/corpus` on its recorded runs, by exact positions.
//!
//! Arguments: `[--format json] DIRECTORY [LABEL=FILE | strategy:NAME]...`. A file is another link of the program, or an
//! order file, which is simulated, as are strategies of `reorder order`. Always shown: the bounds, link order,
//! first-seen order, foresight (first-seen order that also knows what only held-out runs execute), and all of
//! `DIRECTORY/peers` and `DIRECTORY/ours`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script's table is its output")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use end_to_end::layout_corpus::Corpus;
use end_to_end::layout_positions::positions;
use end_to_end::layout_report::LayoutReport;
use end_to_end::layout_simulated::simulated;
use layout_algos::score::Span;

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("layout_table: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<String, String> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let as_json = arguments.starts_with(&["--format".to_owned(), "json".to_owned()]);
    if as_json {
        arguments.drain(..2);
    }
    let (directory, layouts) =
        arguments.split_first().ok_or("arguments: [--format json] DIRECTORY [LAYOUT...]")?;
    let corpus = Corpus::read(Path::new(directory))?;
    let mut all = peers(&corpus.directory)?;
    for layout in layouts {
        all.push(labelled(layout)?);
    }
    let report = report(&corpus, &all)?;
    if !as_json {
        return Ok(report.text());
    }
    serde_json::to_string_pretty(&report).map(|json| json + "\n").map_err(|error| error.to_string())
}

/// The source of a layout.
enum Source {
    /// A link or an order file.
    File(PathBuf),
    /// A strategy of `reorder order`.
    Strategy(String),
}

fn labelled(argument: &str) -> Result<(String, Source), String> {
    if let Some(strategy) = argument.strip_prefix("strategy:") {
        return Ok((strategy.to_owned(), Source::Strategy(strategy.to_owned())));
    }
    let (label, path) = argument
        .split_once('=')
        .ok_or_else(|| format!("{argument}: neither LABEL=FILE nor strategy:NAME"))?;
    Ok((label.to_owned(), Source::File(PathBuf::from(path))))
}

/// The links and orders in `peers` and `ours`, by name; a suffix tells what they were made from.
fn peers(directory: &Path) -> Result<Vec<(String, Source)>, String> {
    let mut peers = Vec::new();
    for place in ["peers", "ours"] {
        let Ok(entries) = fs::read_dir(directory.join(place)) else { continue };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| error.to_string())?.path();
            if path.extension().is_none() && path.is_file() {
                found.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path));
            }
        }
        found.sort();
        peers.extend(found.into_iter().map(|(label, path)| (label, Source::File(path))));
    }
    Ok(peers)
}

fn report(corpus: &Corpus, layouts: &[(String, Source)]) -> Result<LayoutReport, String> {
    let mut report = LayoutReport::new(corpus);
    let starts = || corpus.train.starts.iter();
    let first_seen = simulated(corpus, &corpus.first_seen(starts()));
    let foresight = simulated(corpus, &corpus.first_seen(starts().chain(&corpus.held_out.starts)));
    report.add(corpus, "link order", &corpus.spans, Vec::new());
    report.add(corpus, "first-seen, simulated", &first_seen, Vec::new());
    report.add(corpus, "foresight, simulated", &foresight, Vec::new());
    for (label, source) in layouts {
        let (spans, mut remarks) = match source {
            Source::File(path) => placed(corpus, path)?,
            Source::Strategy(strategy) => (simulated(corpus, &corpus.ordered(strategy)?), Vec::new()),
        };
        if label == "first-seen" {
            remarks.push(agreement(corpus, &spans, &first_seen));
        }
        report.add(corpus, label, &spans, remarks);
    }
    Ok(report)
}

/// The functions' positions in a link, or those that a link with this order would give them.
fn placed(corpus: &Corpus, path: &Path) -> Result<(Vec<Span>, Vec<String>), String> {
    let bytes = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut remarks = Vec::new();
    if !bytes.starts_with(b"\x7fELF") {
        let (listed, unfound) = corpus.listed(path)?;
        if unfound > 0 {
            remarks.push(format!("{unfound} lines name no function, or several"));
        }
        return Ok((simulated(corpus, &listed), remarks));
    }
    let found = positions(corpus, path)?;
    if let Some(&first) = found.unmatched.first() {
        let example = &corpus.names[first as usize].0;
        remarks.push(format!("{} functions not found, such as {example}", found.unmatched.len()));
    }
    Ok((found.spans, remarks))
}

/// How many functions are where the simulation says.
fn agreement(corpus: &Corpus, linked: &[Span], simulated: &[Span]) -> String {
    let equal = linked.iter().zip(simulated).filter(|(linked, simulated)| linked == simulated).count();
    format!("{equal} of {} functions stand where the simulation says", corpus.spans.len())
}
