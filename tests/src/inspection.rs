//! Reads pinned functions from `reorder inspect --format json`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::process;
use crate::workspace::reorder;

const LIMIT: Duration = Duration::from_secs(120);

/// The pinned functions of an image with their reasons.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    reasons: BTreeMap<String, String>,
}

impl Inspection {
    /// Inspects `image` by the command under test.
    ///
    /// # Errors
    /// A sentence when the command does not call the image movable or its report does not have the expected form.
    pub fn of(image: &Path) -> Result<Self, String> {
        let mut command = reorder();
        command.args(["inspect", "--format", "json"]).arg(image);
        let outcome = process::run(&mut command, LIMIT).map_err(|error| error.to_string())?;
        if !outcome.success() {
            return Err(format!("inspect: {outcome}"));
        }
        let report: Value = serde_json::from_slice(&outcome.stdout).map_err(|error| error.to_string())?;
        let listed = report["pinned"].as_array().ok_or("the report of inspect lists no pinned functions")?;
        let reasons = listed
            .iter()
            .filter_map(|function| {
                Some((function["name"].as_str()?.to_owned(), function["reason"].as_str()?.to_owned()))
            })
            .collect();
        Ok(Self { reasons })
    }

    /// Why the function of this name is pinned; `None` when it may move.
    pub fn reason(&self, name: &str) -> Option<&str> {
        self.reasons.get(name).map(String::as_str)
    }
}
