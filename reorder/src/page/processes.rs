//! Faults of whole processes, measured before: from the JSON of `reorder measure --whole-process` to what a page shows.
//!
//! In: the bytes of that file. Out: a [`MeasuredProcess`] for cold runs, for warm runs, or both. Names are made printable.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::names::printable;
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_report::Width;
use reorder_report::table::counted;
use reorder_run::measure::process::{FaultKind, ProcessFaults};

/// The whole process in cold runs, or in warm ones.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredProcess {
    /// What was run, such as `git --version: 11 cold starts`.
    pub title: String,
    /// What the kinds are called.
    pub kind_titles: BTreeMap<FaultKind, &'static str>,
    /// Where faults happen.
    #[serde(flatten)]
    pub faults: ProcessFaults,
    /// The program that was run.
    #[serde(skip)]
    pub program: PathBuf,
    /// What it was compared with.
    #[serde(skip)]
    pub new_program: Option<PathBuf>,
}

/// The report of `reorder measure`, as far as a page shows it.
#[derive(Deserialize)]
struct File {
    schema: String,
    command: String,
    measurements: Vec<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    old: PathBuf,
    new: Option<PathBuf>,
    arguments: Vec<String>,
    rounds: u64,
    cold: bool,
    process: Option<ProcessFaults>,
}

impl MeasuredProcess {
    /// Reads what `reorder measure --whole-process --format json` printed.
    ///
    /// # Errors
    /// Other files, and measurements without `--whole-process`.
    pub fn read(bytes: &[u8]) -> Result<Vec<Self>> {
        let other = |cause: String| {
            Error::new(ErrorKind::Malformed, cause).with_hint(
                "write it: reorder measure --whole-process PROGRAM NEW --format json -- ARGS > process.json",
            )
        };
        let file: File =
            serde_json::from_slice(bytes).map_err(|error| other(format!("not a measurement: {error}")))?;
        if file.schema != reorder_report::SCHEMA || file.command != "measure" {
            let (schema, command) = (&file.schema, &file.command);
            return Err(other(format!("not a measurement: it is of {command:?} in the schema {schema:?}")));
        }
        let processes: Vec<Self> = file.measurements.into_iter().filter_map(Measured::shown).collect();
        if processes.is_empty() {
            return Err(other("it has no faults of a whole process".to_owned()));
        }
        Ok(processes)
    }

    /// The tables by file and by kind.
    #[must_use]
    pub fn text(&self, width: Width) -> String {
        format!("{}\n{}", self.title, self.faults.text(width))
    }
}

impl Measured {
    fn shown(self) -> Option<MeasuredProcess> {
        let mut faults = self.process?;
        for file in &mut faults.files {
            file.place = printable(&file.place);
        }
        faults.total.place = printable(&faults.total.place);
        let kind = if self.cold { "cold start" } else { "warm start" };
        let program = self.old.file_name().unwrap_or_default().to_string_lossy();
        let command = [vec![program.into_owned()], self.arguments].concat().join(" ");
        Some(MeasuredProcess {
            title: format!("{}: {}", printable(&command), counted(self.rounds, kind)),
            kind_titles: faults.kinds.iter().map(|row| (row.place, row.place.title())).collect(),
            faults,
            program: self.old,
            new_program: self.new,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    const MEASUREMENT: &str = r#"{"schema": "reorder/1", "command": "measure", "system": {}, "measurements": [
        {"old": "/usr/bin/git", "arguments": ["status", "\u202e"], "rounds": 3, "cold": true, "process": null},
        {"old": "/usr/bin/git", "arguments": ["status", "\u202e"], "rounds": 3, "cold": false, "process": {
            "source": "user_events", "runs": 3,
            "total": {"place": "all", "old": {"all": 80}, "new": {"all": 60}},
            "kinds": [{"place": "text", "old": {"all": 50}, "new": {"all": 30}},
                      {"place": "heap_and_stack", "old": {"all": 30}, "new": {"all": 30}}],
            "files": [{"place": "/usr/bin/git\u0007", "old": {"all": 50}, "new": {"all": 30}}]}}]}"#;

    #[test]
    fn a_measurement_is_read_with_printable_names() {
        let processes = MeasuredProcess::read(MEASUREMENT.as_bytes()).unwrap();
        assert_eq!(processes.len(), 1, "the other one has no faults of the process");
        let expected = "\
git status \\u{202e}: 3 warm starts
the whole process, by file  faults, old  faults, new
/usr/bin/git\\u{7}                    50           30

the whole process, by kind  faults, old  faults, new
text                                 50           30
heap and stack                       30           30
all                                  80           60
note: faults inside system calls are not counted; `sysctl kernel.perf_event_paranoid=1` as root shows them
";
        assert_eq!(processes[0].text(Width::UNLIMITED), expected);
    }

    #[test]
    fn other_files_are_no_measurements() {
        for (changed, cause) in [
            (("\"measure\"", "\"gate\""), "it is of \"gate\""),
            (("reorder/1", "reorder/9"), "in the schema \"reorder/9\""),
            (("user_events", "guesses"), "unknown variant"),
            (("\"process\": {", "\"other\": {"), "it has no faults of a whole process"),
        ] {
            let text = MEASUREMENT.replace(changed.0, changed.1);
            let error = MeasuredProcess::read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(cause), "{error}");
        }
    }
}
