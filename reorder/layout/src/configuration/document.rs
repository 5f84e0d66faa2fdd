//! The tables of `reorder.toml` that commands share.
//!
//! ```toml
//! [scenario.status]                 # a kind of startup, under the name that record, measure and gate use
//! traces = ["traces/status"]        # paths are relative to this file
//! program = "target/release/git"    # for `reorder measure`
//! arguments = ["status"]
//!
//! [scenario.status.limits]          # in addition to those of [gate.limits]
//! faults = "+2 %"
//!
//! [model.tablet]                    # pages of 16 KiB, and the bytes that one fault loads
//! page = 16384
//! read-around = 131072              # or read-ahead or fault-around, or neither
//!
//! [gate]
//! baseline = "reorder-baseline.json"
//! models = ["linux-4k", "tablet"]
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use layout_algos::score::FaultModel;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::memory::{MemoryModel, PRESETS};
use reorder_base::error::{Error, Result};

/// What commands share.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Document {
    /// Scenarios, by name.
    #[serde(default)]
    pub scenario: BTreeMap<String, ScenarioTable>,
    /// Memory models, by name.
    #[serde(default)]
    pub model: BTreeMap<String, ModelTable>,
    /// What `reorder gate` does.
    #[serde(default)]
    pub gate: GateTable,
    /// What `reorder measure` does.
    #[serde(default)]
    pub measure: MeasureTable,
}

/// A scenario: one kind of startup.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ScenarioTable {
    /// Its traces: files, or directories of them.
    #[serde(default)]
    pub traces: Vec<PathBuf>,
    /// The program that `reorder record` and `reorder measure` run; one without a slash is looked up as a shell does it.
    pub program: Option<PathBuf>,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Its working directory.
    pub directory: Option<PathBuf>,
    /// Variables that are set for it.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// A file for its standard input; empty unless given.
    pub stdin: Option<PathBuf>,
    /// Seconds after which each run is asked to end, for programs that do not end by themselves.
    pub stop_after: Option<f64>,
    /// Text after which each run is asked to end, once the program has printed it.
    pub until: Option<String>,
    /// Runs of each program that `reorder measure` makes.
    pub runs: Option<usize>,
    /// Its exit status, 0 unless given: a run with another one is a different scenario, and is not recorded.
    #[serde(default)]
    pub status: i32,
    /// In addition to those of the gate; the same key here goes first.
    #[serde(default)]
    pub limits: BTreeMap<String, LimitValue>,
}

/// A memory model.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ModelTable {
    /// Bytes per page.
    pub page: u64,
    /// Bytes of the aligned block that one fault maps.
    pub fault_around: Option<u64>,
    /// Bytes that one fault reads, half of them before its page.
    pub read_around: Option<u64>,
    /// Bytes that one fault reads, from its page on.
    pub read_ahead: Option<u64>,
}

/// What `reorder gate` does.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct GateTable {
    /// The image, unless the command line names one.
    pub image: Option<PathBuf>,
    /// Where the baseline is.
    pub baseline: Option<PathBuf>,
    /// Names of the memory models.
    pub models: Option<Vec<String>>,
    /// Names of compressors: gzip, zstd, xz, brotli, and of each in blocks of this many KiB `zstd.64k`; an empty list for no
    /// compressed sizes.
    pub compressors: Option<Vec<String>>,
    /// An order file whose lines must name functions of the image.
    pub order: Option<PathBuf>,
    /// By metric, such as `faults`, `faults.linux-4k` or `compressed.zstd`.
    #[serde(default)]
    pub limits: BTreeMap<String, LimitValue>,
}

/// What `reorder measure` does.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct MeasureTable {
    /// Runs of each program.
    pub runs: Option<usize>,
}

/// A limit as written: a number, `"+2 %"`, or limits of what the key is a part of the name of.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum LimitValue {
    /// At most this, or at least this for metrics where more is better.
    Number(f64),
    /// Against the baseline, such as `+2 %` or `+10`; `off` for no limit.
    Text(String),
    /// Not a limit; parsed so that the error names its key.
    #[schemars(skip)]
    Flag(bool),
    /// `faults = { linux-4k = "+1 %" }`
    Parts(BTreeMap<String, LimitValue>),
}

/// All limits with their full keys, the parts joined by dots, sorted; a key that is written in two ways is there twice, and
/// a table of no limits is there itself.
#[must_use]
pub fn flatten_limits(limits: &BTreeMap<String, LimitValue>) -> Vec<(String, LimitValue)> {
    let mut flat = Vec::new();
    let mut open: Vec<(String, &LimitValue)> =
        limits.iter().map(|(key, value)| (key.clone(), value)).collect();
    while let Some((key, value)) = open.pop() {
        match value {
            LimitValue::Parts(parts) if !parts.is_empty() => {
                open.extend(parts.iter().map(|(part, value)| (format!("{key}.{part}"), value)));
            }
            value => flat.push((key, value.clone())),
        }
    }
    flat.sort_by(|one, other| one.0.cmp(&other.0));
    flat
}

/// The largest page, block or window that a model may have: beyond it all layouts would look the same.
const MAX_UNIT: u64 = 1 << 30;
/// The smallest page.
const MIN_PAGE: u64 = 256;

impl Document {
    /// The repository's own memory models.
    ///
    /// # Errors
    /// Sizes that are no powers of two, or that do not fit together.
    pub fn models(&self) -> Result<Vec<MemoryModel>> {
        self.model.iter().map(|(name, table)| table.named(name)).collect()
    }
}

impl ModelTable {
    fn named(self, name: &str) -> Result<MemoryModel> {
        // Baselines and reports refer to presets by name: a name keeps its meaning.
        if PRESETS.iter().any(|preset| preset.name == name) {
            return Err(Error::usage(format!(
                "[model.{name}] has the name of a model that comes with the program"
            ))
            .with_hint("call it otherwise"));
        }
        let mistake = |cause: &str| {
            Error::usage(format!("[model.{name}] {cause}")).with_hint(
                "write page = 4096 and, if one fault brings in more, fault-around = 65536, read-around or read-ahead = 131072",
            )
        };
        let unit = self.fault_around.or(self.read_around).or(self.read_ahead).unwrap_or(self.page);
        if ![self.page, unit].iter().all(|size| size.is_power_of_two()) {
            return Err(mistake("has a size that is no power of two"));
        }
        if self.page < MIN_PAGE || unit < self.page || unit > MAX_UNIT {
            return Err(mistake("has sizes that do not fit together"));
        }
        let kibibytes = |bytes: u64| match bytes % 1024 {
            0 => format!("{} KiB", bytes / 1024),
            _ => format!("{bytes} bytes"),
        };
        let page = self.page;
        let (title, model) = match (self.fault_around, self.read_around, self.read_ahead) {
            (None, None, None) => (format!("{} pages", kibibytes(page)), FaultModel::Pages { size: page }),
            (Some(block), None, None) => {
                (format!("{} fault-around", kibibytes(block)), FaultModel::FaultAround { block })
            }
            (None, Some(window), None) => {
                // A window of one page has no room before its page.
                let before = (window / 2) / page * page;
                let model = FaultModel::ReadAround { page, window, before };
                (format!("{} read-around", kibibytes(window)), model)
            }
            (None, None, Some(window)) => {
                let model = FaultModel::ReadAround { page, window, before: 0 };
                (format!("{} read-ahead", kibibytes(window)), model)
            }
            _ => return Err(mistake("has more than one of fault-around, read-around and read-ahead")),
        };
        Ok(MemoryModel { name: name.to_owned(), title, model })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn models_of_a_repository_have_the_presets_form() {
        let text = "[model.plain]\npage = 16384\n[model.wide]\npage = 4096\nread-around = 65536\n\
                    [model.block]\npage = 4096\nfault-around = 32768\n[link]\nseed = 3\n";
        let document: Document = toml::from_str(text).unwrap();
        let models = document.models().unwrap();
        let models: Vec<_> = models.iter().map(|model| (model.title.as_str(), model.model)).collect();
        let expected = [
            ("32 KiB fault-around", FaultModel::FaultAround { block: 32 << 10 }),
            ("16 KiB pages", FaultModel::Pages { size: 16 << 10 }),
            (
                "64 KiB read-around",
                FaultModel::ReadAround { page: 4 << 10, window: 64 << 10, before: 32 << 10 },
            ),
        ];
        assert_eq!(models, expected);
    }

    #[test]
    fn impossible_models_are_refused() {
        for table in [
            "page = 5000",
            "page = 4096\nread-around = 1024",
            "page = 4096\nfault-around = 8192\nread-around = 8192",
            "page = 0",
        ] {
            let document: Document = toml::from_str(&format!("[model.m]\n{table}\n")).unwrap();
            let error = document.models().unwrap_err();
            assert!(error.to_string().contains("[model.m]") && error.hint.is_some(), "{error}");
        }
    }

    #[test]
    fn presets_keep_their_names() {
        let document: Document = toml::from_str("[model.linux-4k]\npage = 65536\n").unwrap();
        assert!(document.models().unwrap_err().to_string().contains("[model.linux-4k]"));
    }

    #[test]
    fn limits_have_one_key_however_they_are_written() {
        let nested: Document =
            toml::from_str("[gate.limits]\nfaults = { linux-4k = '+1 %' }\ncompressed.zstd = 100\n").unwrap();
        let dotted: Document =
            toml::from_str("[gate.limits]\n'faults.linux-4k' = '+1 %'\n'compressed.zstd' = 100.0\n").unwrap();
        let flat = flatten_limits(&nested.gate.limits);
        assert_eq!(flat, flatten_limits(&dotted.gate.limits));
        let keys: Vec<&str> = flat.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["compressed.zstd", "faults.linux-4k"]);
    }
}
