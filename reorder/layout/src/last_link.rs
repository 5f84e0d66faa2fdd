//! What `reorder-ld` did last for each output, kept where a build that hides the linker's messages can be asked for it.
//!
//! `reorder-ld` writes one file for each output into its cache; `reorder doctor` reads those of a project.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The beginning of the names of these files; the rest is a digest of the output's path and `.json`.
pub const FILE_PREFIX: &str = "last-";

/// The folder of these files and of earlier links, below the one where programs keep what can be made again.
pub const CACHE_FOLDER: &str = "reorder/links";

/// The last link of one output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastLink {
    /// The output, as an absolute path.
    pub output: PathBuf,
    /// Where the link was done.
    pub directory: PathBuf,
    /// When, in seconds since 1970.
    pub seconds: u64,
    /// What came of it.
    pub outcome: LinkOutcome,
}

/// What came of a link for which there were traces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkOutcome {
    /// The functions were ordered.
    Ordered {
        /// What was done, in a line.
        summary: String,
    },
    /// The output is as without traces.
    NotOrdered {
        /// Why.
        reason: String,
        /// What to do about it.
        hint: Option<String>,
    },
}
