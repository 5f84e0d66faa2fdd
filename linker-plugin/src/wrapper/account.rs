//! The account of a link where it can be found after the build: in the file that the user names, and in the cache, because
//! builds such as cargo's swallow what a linker prints.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use reorder_base::error::{Error, Result};
use reorder_layout::last_link::{FILE_PREFIX, LastLink, LinkOutcome};
use reorder_report::{Report, Width};
use serde::Serialize;

use super::contents::digest_of;
use super::environment::Environment;
use super::invocation::Invocation;
use super::options::Options;
use super::report::LinkReport;
use super::talk::{Talk, hint_of};

/// Where accounts go.
#[derive(Clone, Copy, Debug)]
pub struct Account<'call> {
    /// What is linked.
    pub(crate) invocation: &'call Invocation,
    /// The options.
    pub(crate) options: &'call Options,
    /// The environment.
    pub(crate) environment: &'call Environment,
    /// For messages.
    pub(crate) talk: Talk,
}

/// A link that was not ordered, as the report of it.
#[derive(Debug, Serialize)]
struct UnorderedReport {
    output: String,
    is_ordered: bool,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl Report for UnorderedReport {
    const COMMAND: &'static str = "link";

    fn text(&self, _width: Width) -> String {
        format!("{}: not ordered: {}", self.output, self.reason)
    }
}

impl Account<'_> {
    /// The functions of the output were ordered. The output is delivered: an error here is only a warning.
    pub(crate) fn ordered(&self, report: &LinkReport) {
        self.talk.note(&report.text(Width::UNLIMITED));
        self.write(report);
        let text = report.text(Width::UNLIMITED);
        let summary = text.strip_prefix(&format!("{}: ", report.output)).unwrap_or(&text).to_owned();
        self.keep(LinkOutcome::Ordered { summary });
    }

    /// The output is linked without an order, or not at all, because of `error`.
    pub(crate) fn not_ordered(&self, error: &Error) {
        let (reason, hint) = (error.to_string(), hint_of(error));
        self.write(&UnorderedReport {
            output: self.invocation.output.display().to_string(),
            is_ordered: false,
            reason: reason.clone(),
            hint: hint.clone(),
        });
        self.keep(LinkOutcome::NotOrdered { reason, hint });
    }

    fn write(&self, report: &impl Report) {
        let Some(file) = &self.options.report else { return };
        let file = self.invocation.directory.join(file);
        let written = reorder_report::render(report, reorder_report::Format::Json, Width::UNLIMITED)
            .and_then(|json| reorder_system::write::whole(&file, json.as_bytes()));
        if let Err(error) = written {
            self.talk.warning(&format!("the report is not written: {error}"), hint_of(&error).as_deref());
        }
    }

    /// A cache that cannot be written is no reason for a message: nothing depends on it.
    fn keep(&self, outcome: LinkOutcome) {
        let Some(cache) = self.options.cache_directory(self.environment) else { return };
        let output = self.invocation.output_path();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let directory = self.invocation.directory.clone();
        let _ = keep(&cache, &LastLink { output, directory, seconds, outcome });
    }
}

fn keep(cache: &Path, link: &LastLink) -> Result<()> {
    std::fs::create_dir_all(cache).map_err(|error| Error::io(cache, error))?;
    let digest = digest_of(link.output.as_os_str().as_encoded_bytes());
    let text = serde_json::to_vec(link)
        .map_err(|error| Error::usage(format!("cannot express the account as JSON: {error}")))?;
    reorder_system::write::whole(&cache.join(format!("{FILE_PREFIX}{}.json", digest.0)), &text)
}
