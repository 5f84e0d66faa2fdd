//! JSON Schemas of what programs read and people write: the report of the gate, its baseline, and `reorder.toml`.
//!
//! In: the name of one. Out: the schema, generated from the types that are read and written, so it is always accurate. The
//! repository has copies in `reorder/schemas`, for editors.

use clap::ValueEnum;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use crate::gate::{GateReport, baseline};
use reorder_base::error::{Error, Result};
use reorder_layout::configuration::Document;

/// The schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaName {
    /// What `reorder gate --format json` writes
    Gate,
    /// The baseline of `reorder gate`
    Baseline,
    /// reorder.toml, for editors
    Configuration,
}

/// Report of `reorder gate`, with all limits and verdicts. Keys may be added; none is removed without another `schema`.
#[derive(JsonSchema)]
#[schemars(title = "Report of reorder gate")]
#[allow(dead_code)] // describes the envelope of `report::render`
struct GateFile {
    /// Of all reports.
    #[schemars(extend("const" = reorder_report::SCHEMA))]
    schema: String,
    /// The command that wrote it.
    #[schemars(extend("const" = "gate"))]
    command: String,
    #[serde(flatten)]
    report: GateReport,
}

/// What a repository keeps for all commands of reorder.
#[derive(JsonSchema)]
#[schemars(title = "reorder.toml")]
#[allow(dead_code)] // describes a file whose parts others read
struct ConfigurationFile {
    #[serde(flatten)]
    document: Document,
    /// Options of `reorder-ld` and `reorder-cc`, by their long names; `reorder-ld --reorder-help` lists them.
    #[serde(default)]
    link: serde_json::Map<String, serde_json::Value>,
}

impl SchemaName {
    /// The schema. Draft 7 for `reorder.toml`, which is what editors know best, else 2020-12.
    #[must_use]
    pub(crate) fn schema(self) -> Schema {
        let newest = SchemaSettings::draft2020_12();
        match self {
            Self::Gate => newest.for_serialize().into_generator().into_root_schema_for::<GateFile>(),
            Self::Baseline => newest.into_generator().into_root_schema_for::<baseline::File>(),
            Self::Configuration => {
                SchemaSettings::draft07().into_generator().into_root_schema_for::<ConfigurationFile>()
            }
        }
    }

    /// The schema as a file.
    ///
    /// # Errors
    /// When it cannot be expressed as JSON, which is a mistake in the types.
    pub(crate) fn text(self) -> Result<String> {
        serde_json::to_string_pretty(&self.schema())
            .map(|text| text + "\n")
            .map_err(|error| Error::usage(format!("cannot express the schema as JSON: {error}")))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn the_files_of_the_repository_are_current() {
        for name in SchemaName::value_variants() {
            let word = name.to_possible_value().unwrap().get_name().to_owned();
            let file = format!("{}/schemas/{word}.schema.json", env!("CARGO_MANIFEST_DIR"));
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                kept == name.text().unwrap(),
                "type: reorder schema {word} > reorder/schemas/{word}.schema.json"
            );
        }
    }
}
