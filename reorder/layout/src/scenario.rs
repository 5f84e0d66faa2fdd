//! Traces to scenarios: kinds of startup with a name, each with any number of recordings.
//!
//! In: traces with where they come from, and what `reorder.toml` calls its scenarios. Out: [`Scenario`]s, sorted by name.
//! A trace belongs to the scenario that lists its file; else it is named by its folder below the given directory,
//! else by the arguments it was recorded with, else by its file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use reorder_trace::{ResolvedTrace, ResolvedTraces};

/// One kind of startup under its name.
#[derive(Clone, Debug)]
pub struct Scenario<'traces> {
    /// As in `reorder.toml`, reports and baselines.
    pub name: String,
    /// Its recordings, in the order given; never empty.
    pub traces: Vec<&'traces ResolvedTrace>,
}

impl Scenario<'_> {
    /// How many runs its recordings represent; recordings of weight 0 count once if there are no others.
    #[must_use]
    pub fn weight(&self) -> u64 {
        self.traces.iter().map(|trace| trace.weight).fold(0, u64::saturating_add)
    }

    /// The mean of `value` over its runs.
    #[must_use]
    pub fn mean(&self, mut value: impl FnMut(&ResolvedTrace) -> f64) -> f64 {
        let weight = self.weight();
        let weight_of = |trace: &ResolvedTrace| if weight == 0 { 1 } else { trace.weight };
        let sum: f64 = self.traces.iter().map(|trace| value(trace) * weight_of(trace) as f64).sum();
        let starts: u64 = self.traces.iter().map(|trace| weight_of(trace)).fold(0, u64::saturating_add);
        sum / starts.max(1) as f64
    }
}

/// Where traces come from: the files or directories of scenarios.
#[derive(Clone, Debug, Default)]
pub struct ScenarioSources {
    /// By name, as `reorder.toml` lists them.
    pub named: BTreeMap<String, Vec<PathBuf>>,
    /// Given without names.
    pub unnamed: Vec<PathBuf>,
}

impl ScenarioSources {
    /// All paths, those of scenarios first.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        self.named.values().flatten().chain(&self.unnamed).cloned().collect()
    }

    /// Sorts `traces` into scenarios.
    ///
    /// Of a scenario that was recorded with this build and with others, only the recordings of this build count: the others
    /// ran other functions.
    #[must_use]
    pub fn group<'traces>(&self, traces: &'traces ResolvedTraces) -> Vec<Scenario<'traces>> {
        let mut groups: BTreeMap<String, Vec<&ResolvedTrace>> = BTreeMap::new();
        for trace in &traces.traces {
            groups.entry(self.name_of(trace)).or_default().push(trace);
        }
        let of_this_build = |mut traces: Vec<&'traces ResolvedTrace>| {
            if traces.iter().any(|trace| !trace.is_of_other_build) {
                traces.retain(|trace| !trace.is_of_other_build);
            }
            traces
        };
        groups.into_iter().map(|(name, traces)| Scenario { name, traces: of_this_build(traces) }).collect()
    }

    fn name_of(&self, trace: &ResolvedTrace) -> String {
        let source = trace.source.as_deref();
        // A scenario's directory may lie in another's: the nearest one owns the file.
        let nearness = |paths: &Vec<PathBuf>| {
            let around = paths.iter().filter(|path| source.is_some_and(|source| source.starts_with(path)));
            around.map(|path| path.components().count()).max()
        };
        let owners = self.named.iter().filter_map(|(name, paths)| Some((nearness(paths)?, name)));
        if let Some((_, name)) = owners.max_by_key(|(nearness, _)| *nearness) {
            return name.clone();
        }
        let folder = source.and_then(|source| {
            let below = self.unnamed.iter().find_map(|path| source.strip_prefix(path).ok())?;
            below.parent().filter(|folder| *folder != Path::new(""))
        });
        if let Some(folder) = folder {
            return folder.display().to_string();
        }
        if let [_, arguments @ ..] = trace.command.as_slice()
            && !arguments.is_empty()
        {
            let words: Vec<_> = arguments.iter().map(|word| String::from_utf8_lossy(word)).collect();
            return words.join(" ");
        }
        let stem = source.and_then(Path::file_stem).unwrap_or_default().to_string_lossy();
        without_run(&stem).to_owned()
    }
}

/// `git` of `git.001.000`, a name of a recording: the next recording of the same startup has another number.
fn without_run(stem: &str) -> &str {
    let mut name = stem;
    while let Some((rest, number)) = name.rsplit_once('.') {
        if rest.is_empty() || number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            break;
        }
        name = rest;
    }
    if name.is_empty() { "start" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traced(source: &str, command: &[&str], weight: u64) -> ResolvedTrace {
        ResolvedTrace {
            weight,
            source: Some(PathBuf::from(source)),
            command: command.iter().map(|word| word.as_bytes().to_vec()).collect(),
            ..ResolvedTrace::default()
        }
    }

    #[test]
    fn names_come_from_the_nearest_source() {
        let traces = ResolvedTraces {
            traces: vec![
                traced("named/a.trace", &["git", "status"], 1),
                traced("named/inner/b.trace", &["git", "status"], 1),
                traced("given/log/git.001.000.trace", &["git", "log", "-1"], 1),
                traced("given/git.002.000.trace", &["git", "status"], 1),
                traced("given/git.003.000.trace", &["git", "status"], 3),
                traced("given/git.004.000.trace", &["git"], 0),
                traced("one.profraw", &[], 1),
            ],
            ..ResolvedTraces::default()
        };
        let sources = ScenarioSources {
            named: [
                ("first".to_owned(), vec![PathBuf::from("named")]),
                ("inner".to_owned(), vec![PathBuf::from("named/inner")]),
            ]
            .into(),
            unnamed: vec![PathBuf::from("given"), PathBuf::from("one.profraw")],
        };
        let scenarios = sources.group(&traces);
        let names: Vec<_> =
            scenarios.iter().map(|scenario| (scenario.name.as_str(), scenario.traces.len())).collect();
        assert_eq!(names, [("first", 1), ("git", 1), ("inner", 1), ("log", 1), ("one", 1), ("status", 2)]);
        assert!((scenarios[5].mean(|trace| trace.weight as f64) - 2.5).abs() < 1e-9, "weights count");
        assert!((scenarios[1].mean(|_| 7.0) - 7.0).abs() < 1e-9, "a start of no weight is a start");
    }

    #[test]
    fn recordings_of_this_build_go_before_others() {
        let old = |source| ResolvedTrace { is_of_other_build: true, ..traced(source, &["p", "a"], 1) };
        let traces = ResolvedTraces {
            traces: vec![
                old("t/a/p.001.001.trace"),
                traced("t/a/p.002.001.trace", &["p"], 1),
                old("t/b/p.001.001.trace"),
            ],
            ..ResolvedTraces::default()
        };
        let sources = ScenarioSources { unnamed: vec![PathBuf::from("t")], ..ScenarioSources::default() };
        let counts: Vec<_> =
            sources.group(&traces).iter().map(|one| (one.name.clone(), one.traces.len())).collect();
        assert_eq!(counts, [("a".to_owned(), 1), ("b".to_owned(), 1)]);
    }

    #[test]
    fn numbers_of_runs_are_no_part_of_a_name() {
        for (stem, name) in
            [("git.001.000", "git"), ("python3.11", "python3"), ("a", "a"), ("", "start"), (".5", ".5")]
        {
            assert_eq!(without_run(stem), name);
        }
    }
}
