//! The line that each check belongs to, for tools that show findings beside lines of files.
//!
//! In: checks, the text of `reorder.toml` and that of the baseline. Out: for each check the line of its limit, otherwise
//! that of its figure in the baseline, otherwise the first line of the baseline. Paths are relative to the root of the
//! repository, as such tools require.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use toml::de::{DeTable, DeValue};

use super::check::Check;
use super::metric::{Figure, Key};

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Place {
    /// Relative to the root of the repository, if it is in one.
    pub file: String,
    /// From 1.
    pub line: u64,
}

/// A file that was read.
#[derive(Clone, Copy, Debug)]
pub struct Source<'file> {
    /// As it was opened.
    pub path: &'file Path,
    /// All of it.
    pub text: &'file str,
}

/// Gives each check its place.
pub fn locate(checks: &mut [Check], configuration: Option<Source<'_>>, baseline: Option<Source<'_>>) {
    let limits = configuration.map(|source| (from_root(source.path), limit_lines(source.text)));
    let figures = baseline.map(|source| (from_root(source.path), figure_lines(source.text)));
    for check in checks {
        let of_limit = check.limit.as_ref().and_then(|limit| {
            let (file, lines) = limits.as_ref()?;
            Some(Place { file: file.clone(), line: *lines.get(&limit.source)? })
        });
        let of_figure = || {
            let (file, lines) = figures.as_ref()?;
            Some(Place { file: file.clone(), line: lines.get(&identity(&check.key)).copied().unwrap_or(1) })
        };
        check.place = of_limit.or_else(of_figure);
    }
}

/// The path relative to the innermost directory above that holds a repository, with slashes; otherwise unchanged.
fn from_root(path: &Path) -> String {
    let found = path.canonicalize().ok().and_then(|path| {
        let root = path.ancestors().skip(1).find(|folder| folder.join(".git").exists())?;
        Some(path.strip_prefix(root).ok()?.to_string_lossy().into_owned())
    });
    found.unwrap_or_else(|| path.to_string_lossy().into_owned())
}

/// Lines of limits, by their source as [`super::limit`] names it.
fn limit_lines(text: &str) -> BTreeMap<String, u64> {
    let mut lines = BTreeMap::new();
    // Errors in it were reported when it was read.
    let Ok(document) = DeTable::parse(text) else { return lines };
    let line_of = LineCounter::new(text);
    let document = document.get_ref();
    let mut add = |owner: &str, limits: &DeTable<'_>| {
        let mut open: Vec<(String, &DeTable<'_>)> = vec![(String::new(), limits)];
        while let Some((prefix, limits)) = open.pop() {
            for (key, value) in limits {
                let path = format!("{prefix}{}", key.get_ref());
                match value.get_ref() {
                    DeValue::Table(parts) => open.push((format!("{path}."), parts)),
                    _ => {
                        lines.insert(format!("[{owner}] {path}"), line_of.line(key.span().start));
                    }
                }
            }
        }
    };
    if let Some(limits) = subtable(document, "gate").and_then(|gate| subtable(gate, "limits")) {
        add("gate.limits", limits);
    }
    for (name, scenario) in subtable(document, "scenario").into_iter().flat_map(|scenarios| scenarios.iter())
    {
        let DeValue::Table(scenario) = scenario.get_ref() else { continue };
        if let Some(limits) = subtable(scenario, "limits") {
            add(&format!("scenario.{}.limits", name.get_ref()), limits);
        }
    }
    lines
}

fn subtable<'table, 'text>(table: &'table DeTable<'text>, name: &str) -> Option<&'table DeTable<'text>> {
    match table.get(name)?.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// Lines of figures: baselines have one line for each.
fn figure_lines(text: &str) -> BTreeMap<(String, Option<String>), u64> {
    let figure = |(line, number): (&str, u64)| {
        let line = line.trim().trim_end_matches(',');
        if !line.starts_with("{\"metric\"") {
            return None;
        }
        serde_json::from_str::<Figure>(line).ok().map(|figure| (identity(&figure.key), number))
    };
    text.lines().zip(1..).filter_map(figure).collect()
}

fn identity(key: &Key) -> (String, Option<String>) {
    (key.path(), key.scenario.clone())
}

/// Finds lines by offsets.
struct LineCounter(Vec<usize>);

impl LineCounter {
    fn new(text: &str) -> Self {
        Self(text.match_indices('\n').map(|(offset, _)| offset).collect())
    }

    fn line(&self, offset: usize) -> u64 {
        self.0.partition_point(|&end| end < offset) as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use proptest::prelude::*;

    use super::super::baseline::Baseline;
    use super::super::metric::Metric;
    use super::*;

    #[test]
    fn limits_and_figures_have_lines() {
        let lines = limit_lines(
            "[gate]\nimage = 'a'\n[gate.limits]\nfaults = '+2 %'\ncompressed.zstd = 3\n\n\
             [scenario.a.limits]\nfaults = { linux-4k = 1,\n  ios-16k = 2 }\n[scenario.'b.c'.limits]\nfaults = 2\n",
        );
        let expected = [
            ("[gate.limits] compressed.zstd", 5),
            ("[gate.limits] faults", 4),
            ("[scenario.a.limits] faults.ios-16k", 9),
            ("[scenario.a.limits] faults.linux-4k", 8),
            ("[scenario.b.c.limits] faults", 11),
        ];
        assert_eq!(lines, expected.map(|(name, line)| (name.to_owned(), line)).into());
        let figure = |metric| Figure::new(Key::of_image(metric, ""), 3.0);
        let baseline = Baseline {
            figures: vec![figure(Metric::Faults), figure(Metric::FileBytes)],
            ..Baseline::default()
        };
        let lines = figure_lines(&baseline.write());
        assert_eq!(lines[&("faults".to_owned(), None)], 8);
        assert_eq!(lines[&("file-bytes".to_owned(), None)], 9);
    }

    #[test]
    fn paths_start_at_the_repository() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let file = inner.join("f");
        std::fs::write(&file, "").unwrap();
        std::fs::create_dir(directory.path().join(".git")).unwrap();
        assert_eq!(from_root(&file), "a/b/f");
        assert_eq!(from_root(Path::new("no/such")), "no/such");
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(\\[gate.limits\\]\n)?[a-z=.{}'\\[\\]\n 0-9\"]{0,60}") {
            let _ = (limit_lines(&text), figure_lines(&text));
        }
    }
}
