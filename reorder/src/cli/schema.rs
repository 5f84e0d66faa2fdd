//! `reorder schema`: prints a JSON Schema.

use clap::Args;

use crate::cli::context::Context;
use crate::exit_status::ExitStatus;
use crate::schema::SchemaName;
use reorder_base::error::Result;

const EXAMPLES: &str = "\
Examples:
  reorder schema gate > gate.schema.json
  reorder schema configuration > .reorder.schema.json    # and in reorder.toml: #:schema .reorder.schema.json";

/// Print a JSON Schema: of the gate's report, of its baseline, or of reorder.toml
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct SchemaArguments {
    /// Which schema
    #[arg(value_enum, value_name = "NAME")]
    name: SchemaName,
}

/// Prints it.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(arguments: &SchemaArguments, context: &Context) -> Result<ExitStatus> {
    context.print_bytes(arguments.name.text()?.as_bytes())?;
    Ok(ExitStatus::Success)
}
