//! Reads what `reorder inspect --format json` says about the functions of an image.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::process;
use crate::workspace::reorder;

/// One function's fate.
#[derive(Clone, Debug)]
pub struct InspectedFunction {
    /// Which functions move with it: equal numbers move as one.
    pub unit: u64,
    /// Why it stays, if it does.
    pub pinned: Option<String>,
}

/// Functions by each of their names.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    functions: BTreeMap<String, InspectedFunction>,
}

impl Inspection {
    /// Inspects `image` by the command under test, passing on `arguments`.
    ///
    /// # Errors
    /// A sentence when the command fails or its report has not the expected form.
    pub fn of(image: &Path) -> Result<Self, String> {
        let mut command = reorder();
        command.args(["inspect", "--format", "json"]).arg(image);
        let outcome =
            process::run(&mut command, Duration::from_secs(120)).map_err(|error| error.to_string())?;
        if !outcome.success() {
            return Err(format!("inspect failed: {outcome}"));
        }
        let report: Value = serde_json::from_slice(&outcome.stdout).map_err(|error| error.to_string())?;
        let listed = report["functions"].as_array().ok_or("the report of inspect lists no functions")?;
        let mut inspection = Self::default();
        for function in listed {
            let unit = function["unit"].as_u64().ok_or("a function without a unit")?;
            let pinned = function["pinned"].as_str().map(str::to_owned);
            for name in function["names"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                inspection
                    .functions
                    .insert(name.to_owned(), InspectedFunction { unit, pinned: pinned.clone() });
            }
        }
        Ok(inspection)
    }

    /// The function with this symbol; compilers may have added a suffix such as `.constprop.0`.
    ///
    /// # Errors
    /// A sentence when there is none.
    pub fn function(&self, name: &str) -> Result<&InspectedFunction, String> {
        let with_suffix = || {
            let prefix = format!("{name}.");
            self.functions
                .iter()
                .find(|(candidate, _)| candidate.starts_with(&prefix) && !candidate.contains(".cold"))
                .map(|(_, function)| function)
        };
        self.functions.get(name).or_else(with_suffix).ok_or_else(|| format!("inspect does not list `{name}`"))
    }
}
