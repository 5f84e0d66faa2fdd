//! `reorder simulate`: the page faults of recorded runs, without running anything.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::context::Context;
use crate::cli::traces_input::TracesInput;
use crate::error::{Error, Result};
use crate::exit_status::ExitStatus;
use crate::image::elf::file::ElfFile;
use crate::image::functions::FunctionTable;
use crate::simulate::{ImageNames, simulate};
use crate::verify::recover_moves;

/// Count the page faults of recorded runs by a model of memory
///
/// With NEW, an image that `reorder apply` made of IMAGE, both are compared. The traces belong to IMAGE.
#[derive(Args, Debug)]
pub struct SimulateArguments {
    /// The program or shared object that was traced
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The same with its functions moved
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    #[command(flatten)]
    traces: TracesInput,
}

/// Runs the command.
///
/// # Errors
/// Unreadable or refused images, traces that do not fit, and a NEW that is not IMAGE with functions moved.
pub fn run(arguments: &SimulateArguments, context: &Context) -> Result<ExitStatus> {
    let path = &arguments.image;
    let bytes = read(path)?;
    let file = ElfFile::parse(&bytes).map_err(|error| error.in_file(path))?;
    let functions = FunctionTable::collect(&file).map_err(|error| error.in_file(path))?;
    let traces = arguments.traces.resolve(path, &file, &functions, &context.talk)?;
    if traces.traces.is_empty() {
        return Err(Error::usage("profiles without an order of execution cannot be simulated")
            .with_hint(format!("record a start: reorder record -o traces -- {} ARGUMENTS", path.display())));
    }
    let moves = match &arguments.new {
        None => None,
        Some(new) => Some(recover_moves(&bytes, &read(new)?).map_err(|error| {
            error
                .in_file(new)
                .with_hint(format!("give an image that `reorder apply` made of {}", path.display()))
        })?),
    };
    let names = ImageNames {
        old: path.display().to_string(),
        new: arguments.new.as_ref().map(|new| new.display().to_string()),
    };
    context.print(&simulate(names, &functions, &traces, moves.as_ref()))?;
    Ok(ExitStatus::Success)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::io(path, error))
}
