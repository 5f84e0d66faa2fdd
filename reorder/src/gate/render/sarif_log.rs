//! The part of SARIF 2.1.0 that is used, by the names that its schema gives.

use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct Log {
    #[serde(rename = "$schema")]
    pub(super) schema: &'static str,
    pub(super) version: &'static str,
    pub(super) runs: [Run; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Run {
    pub(super) tool: Tool,
    pub(super) invocations: [Invocation; 1],
    pub(super) column_kind: &'static str,
    pub(super) results: Vec<Outcome>,
    pub(super) properties: RunProperties,
}

#[derive(Debug, Serialize)]
pub(super) struct Tool {
    pub(super) driver: Driver,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Driver {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) semantic_version: &'static str,
    pub(super) rules: Vec<Rule>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rule {
    pub(super) id: &'static str,
    pub(super) name: &'static str,
    pub(super) short_description: Message,
    pub(super) full_description: Message,
    pub(super) help: Message,
    pub(super) default_configuration: Level,
}

#[derive(Debug, Serialize)]
pub(super) struct Level {
    pub(super) level: &'static str,
}

#[derive(Debug, Serialize)]
pub(super) struct Message {
    pub(super) text: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Invocation {
    pub(super) execution_successful: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) tool_execution_notifications: Vec<Notification>,
}

#[derive(Debug, Serialize)]
pub(super) struct Notification {
    pub(super) level: &'static str,
    pub(super) message: Message,
}

/// A result; `Result` is another thing here.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Outcome {
    pub(super) rule_id: &'static str,
    pub(super) rule_index: usize,
    pub(super) level: &'static str,
    pub(super) message: Message,
    pub(super) locations: [Location; 1],
    pub(super) partial_fingerprints: Fingerprints,
    pub(super) properties: ResultProperties,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Location {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) physical_location: Option<PhysicalLocation>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) logical_locations: Vec<LogicalLocation>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PhysicalLocation {
    pub(super) artifact_location: ArtifactLocation,
    pub(super) region: Region,
}

#[derive(Debug, Serialize)]
pub(super) struct ArtifactLocation {
    pub(super) uri: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Region {
    pub(super) start_line: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LogicalLocation {
    pub(super) fully_qualified_name: String,
    pub(super) kind: &'static str,
}

/// Identifies the same result in different runs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fingerprints {
    /// The one that code scanning of GitHub looks at.
    pub(super) primary_location_line_hash: String,
}

#[derive(Debug, Serialize)]
pub(super) struct ResultProperties {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scenario: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) baseline: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) current: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) worst: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) limit: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct RunProperties {
    pub(super) image: String,
    pub(super) outcome: crate::gate::report::Outcome,
}
