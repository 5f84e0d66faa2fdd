//! Output of commands: one serialisable model per command, rendered as text or JSON.
//!
//! In: a [`Report`]. Out: a string. Guarantees: JSON and text come from the same value; JSON is one object that
//! starts with its schema and command, with keys in declaration order.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

pub mod table;
pub mod visible;
pub mod width;

use serde::Serialize;

use reorder_base::error::{Error, Result};
pub use width::Width;

/// The form of results on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object for programs.
    Json,
}

/// Version of the JSON form; changes when a key is removed or changes its meaning.
pub const SCHEMA: &str = "reorder/1";

/// A command's result.
///
/// Field names are snake_case and end in their unit (`text_bytes`, `wall_seconds`), numbers stay numbers.
pub trait Report: Serialize {
    /// The command that produced it.
    const COMMAND: &'static str;

    /// The form for people, ending in a line break; tables fit into `width`.
    fn text(&self, width: Width) -> String;
}

#[derive(Serialize)]
struct Envelope<'report, R> {
    schema: &'static str,
    command: &'static str,
    #[serde(flatten)]
    report: &'report R,
}

/// Renders `report` in `format`; text in lines of `width`.
///
/// # Errors
/// When the model cannot be expressed as a JSON object, which is a mistake in the model.
pub fn render<R: Report>(report: &R, format: Format, width: Width) -> Result<String> {
    match format {
        Format::Text => Ok(width.wrapped(&report.text(width))),
        Format::Json => {
            let envelope = Envelope { schema: SCHEMA, command: R::COMMAND, report };
            serde_json::to_string_pretty(&envelope)
                .map(|json| json + "\n")
                .map_err(|error| Error::usage(format!("cannot express the report as JSON: {error}")))
        }
    }
}

/// The manual page of one command-line definition, as troff.
///
/// # Errors
/// When it cannot be rendered.
pub fn manual_page(definition: &clap::Command) -> Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(definition.clone())
        .render(&mut page)
        .map_err(|error| Error::usage(format!("cannot render the manual: {error}")))?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Sizes {
        text_bytes: u64,
    }

    impl Report for Sizes {
        const COMMAND: &'static str = "sizes";

        fn text(&self, _: Width) -> String {
            format!("{} bytes\n", self.text_bytes)
        }
    }

    #[test]
    fn json_starts_with_schema_and_command() {
        let json =
            render(&Sizes { text_bytes: 7 }, Format::Json, Width::UNLIMITED).expect("a flat model renders");
        let keys: Vec<&str> = json.lines().filter_map(|line| line.split('"').nth(1)).collect();
        assert_eq!(keys, ["schema", "command", "text_bytes"]);
    }

    #[test]
    fn text_is_the_models_own() {
        assert_eq!(
            render(&Sizes { text_bytes: 7 }, Format::Text, Width::UNLIMITED).expect("text renders"),
            "7 bytes\n"
        );
    }
}
