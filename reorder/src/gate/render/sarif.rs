//! SARIF 2.1.0, for code scanning: a rule for each metric and a result for each finding.
//!
//! In: the report. Out: JSON. The location of a result is the limit in `reorder.toml`, otherwise the figure in the baseline;
//! the functions that cause it are logical locations. Its fingerprint depends on what is checked, not on values or lines, so
//! that a finding keeps its identity from run to run.

use sha2::{Digest, Sha256};

use super::sarif_log::{
    ArtifactLocation, Driver, Fingerprints, Invocation, Level, Location, Log, LogicalLocation, Message,
    Notification, Outcome, PhysicalLocation, Region, ResultProperties, Rule, Run, RunProperties, Tool,
};
use super::{Severity, because, findings};
use crate::gate::check::Check;
use crate::gate::metric::{Key, Metric};
use crate::gate::report::GateReport;
use reorder_base::error::{Error, Result};
use reorder_base::hexadecimal::encode;
use reorder_report::visible::visible;

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// Functions that a result names.
const SHOWN_FUNCTIONS: usize = 24;

/// The report as SARIF.
///
/// # Errors
/// When it cannot be expressed as JSON, which is a defect of the model.
pub(super) fn render(report: &GateReport) -> Result<String> {
    let (severity, findings) = findings(report);
    let level = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let notification = |remark: &crate::gate::report::Remark| {
        let next = remark.next.as_ref().map_or_else(String::new, |next| format!("; {next}"));
        Notification { level: "note", message: message(&format!("{}{next}", remark.cause)) }
    };
    let run = Run {
        tool: Tool {
            driver: Driver {
                name: "reorder",
                version: report.reorder,
                semantic_version: report.reorder,
                rules: Metric::ALL.into_iter().map(rule).collect(),
            },
        },
        invocations: [Invocation {
            execution_successful: true,
            tool_execution_notifications: report.remarks.iter().map(notification).collect(),
        }],
        column_kind: "unicodeCodePoints",
        results: findings.into_iter().map(|check| result(report, check, level)).collect(),
        properties: RunProperties { image: report.image.clone(), outcome: report.outcome },
    };
    serde_json::to_string_pretty(&Log { schema: SCHEMA, version: "2.1.0", runs: [run] })
        .map(|text| text + "\n")
        .map_err(|error| Error::usage(format!("cannot express the report as SARIF: {error}")))
}

fn rule(metric: Metric) -> Rule {
    let (name, subject, worse) = about(metric);
    let default_limit = metric.default_limit().map_or_else(
        || "There is no default limit.".to_owned(),
        |limit| format!("The default limit is {limit} against the baseline."),
    );
    let key = metric.key();
    Rule {
        id: key,
        name,
        short_description: message(&format!("{subject} {worse} than allowed.")),
        full_description: message(&format!(
            "{subject} {worse} than allowed by reorder.toml. {default_limit}"
        )),
        help: message(&format!(
            "Limits are in reorder.toml below [gate.limits] or [scenario.NAME.limits], as {key} = \"+2 %\". If the change \
             is intended, write the baseline again: reorder gate IMAGE -t TRACES --update-baseline."
        )),
        default_configuration: Level { level: "error" },
    }
}

/// A name for people, and a sentence in two parts.
fn about(metric: Metric) -> (&'static str, &'static str, &'static str) {
    match metric {
        Metric::Faults => ("PageFaults", "The simulated page faults of a scenario are", "more"),
        Metric::StartupBytes => ("StartupSize", "The functions that a scenario runs are", "larger"),
        Metric::StartupFunctions => {
            ("StartupFunctionCount", "The functions that a scenario runs are", "more")
        }
        Metric::TextBytes => ("TextSize", "The code of the image is", "larger"),
        Metric::FileBytes => ("FileSize", "The file is", "larger"),
        Metric::Compressed => ("CompressedSize", "The compressed file is", "larger"),
        Metric::CompressedCode => {
            ("CompressedCodeSize", "The compressed code of one tier of functions is", "larger")
        }
        Metric::DeltaBytes => ("DeltaSize", "The delta from the old build is", "larger"),
        Metric::PinnedFunctions => ("PinnedFunctionCount", "The functions that cannot be moved are", "more"),
        Metric::TraceCoverage => {
            ("TraceEventsFound", "The events of the traces found in the image are", "fewer")
        }
        Metric::OrderCoverage => {
            ("OrderLinesFound", "The lines of the order file found in the image are", "fewer")
        }
        Metric::WallMilliseconds => ("MeasuredTime", "The measured time of a scenario is", "longer"),
        Metric::MajorFaults => ("MeasuredMajorFaults", "The measured major faults of a scenario are", "more"),
        Metric::PagesTouched => ("MeasuredPages", "The measured pages that a scenario touches are", "more"),
    }
}

fn result(report: &GateReport, check: &Check, level: &'static str) -> Outcome {
    let key = &check.key;
    let lines: Vec<String> =
        std::iter::once(check.sentence()).chain(because(report, check, SHOWN_FUNCTIONS)).collect();
    let functions = report.explanation_of(check).map_or(&[][..], |explanation| &explanation.functions);
    let functions = functions.iter().take(SHOWN_FUNCTIONS);
    let place = check.place.as_ref();
    Outcome {
        rule_id: key.metric.key(),
        rule_index: Metric::ALL.iter().position(|metric| *metric == key.metric).unwrap_or_default(),
        level,
        message: message(&lines.join("\n")),
        locations: [Location {
            physical_location: place.map(|place| PhysicalLocation {
                artifact_location: ArtifactLocation { uri: uri(&place.file) },
                region: Region { start_line: place.line },
            }),
            logical_locations: functions
                .map(|change| LogicalLocation {
                    fully_qualified_name: visible(&change.name).into_owned(),
                    kind: "function",
                })
                .collect(),
        }],
        partial_fingerprints: Fingerprints { primary_location_line_hash: fingerprint(report, key) },
        properties: ResultProperties {
            scenario: key.scenario.clone(),
            baseline: check.baseline,
            current: check.current,
            worst: check.worst,
            limit: check.limit.as_ref().map(|limit| limit.text.clone()),
        },
    }
}

/// A hash of the checked figure and file: sixteen hexadecimal digits, and a count as in GitHub's own fingerprints.
fn fingerprint(report: &GateReport, key: &Key) -> String {
    let image = report.image.rsplit('/').next().unwrap_or_default();
    let digest = Sha256::digest(format!("{image}\0{}\0{:?}", key.path(), key.scenario));
    format!("{}:1", encode(&digest[..8]))
}

/// A text in which braces are not a placeholder, as `{0}` would be, and brackets not a link, as `[text](1)` would be. Braces
/// are doubled in every message, with arguments or without (SARIF 2.1.0, 3.11.5).
fn message(text: &str) -> Message {
    let text = text.replace('{', "{{").replace('}', "}}");
    let is_link_like = text.contains("](");
    let text =
        if is_link_like { text.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]") } else { text };
    Message { text }
}

/// A path as a URI reference: other than plain characters are percent-encoded.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                uri.push(byte.into())
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_no_placeholders_and_no_links() {
        assert_eq!(message("main::{closure#0} is new").text, "main::{{closure#0}} is new");
        assert_eq!(message("{0}, }").text, "{{0}}, }}");
        assert_eq!(message("operator[](int)").text, "operator\\[\\](int)");
        assert_eq!(message("a[1]").text, "a[1]");
    }
}
