//! Compares layouts with a baseline over many programs or folds.
//!
//! Arguments: the baseline's label, then reports of `layout_table --format json`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a script's table is its output")]

use std::process::ExitCode;
use std::{env, fs};

use end_to_end::layout_summary::summary;

fn main() -> ExitCode {
    match run() {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(message) => {
            eprintln!("layout_summary: {message}");
            ExitCode::from(2)
        }
    }
}

fn run() -> Result<String, String> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (baseline, files) = arguments.split_first().ok_or("arguments: BASELINE REPORT.json...")?;
    let reports = files.iter().map(|file| {
        let text = fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))
    });
    summary(&reports.collect::<Result<Vec<_>, _>>()?, baseline)
}
