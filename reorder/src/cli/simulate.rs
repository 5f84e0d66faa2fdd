//! `reorder simulate`: the page faults of recorded runs, without running anything.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::context::Context;
use crate::cli::recovered::recovered;
use crate::cli::scenarios_input::ScenariosInput;
use crate::error::{Error, Result};
use crate::exit_status::ExitStatus;
use crate::opened::OpenedImage;
use crate::simulate::{ImageNames, simulate};

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
    scenarios: ScenariosInput,
}

/// Runs the command.
///
/// # Errors
/// Unreadable or refused images, traces that do not fit, and a NEW that is not IMAGE with functions moved.
pub fn run(arguments: &SimulateArguments, context: &Context) -> Result<ExitStatus> {
    let path = &arguments.image;
    let bytes = read(path)?;
    let in_image = |error: Error| error.in_file(path);
    let image = OpenedImage::parse(&bytes, arguments.scenarios.architecture.as_deref()).map_err(in_image)?;
    let functions = image.functions().map_err(in_image)?;
    let configured = arguments.scenarios.configured(&context.talk)?;
    let models = arguments.scenarios.models(None, &image, &configured)?;
    let starts = arguments.scenarios.resolve(path, &image, &functions, &configured, &context.talk)?;
    let architecture = arguments.scenarios.architecture.as_deref();
    let new = arguments.new.as_ref();
    let moves = new.map(|new| recovered(path, &bytes, new, architecture)).transpose()?;
    let names = ImageNames {
        old: path.display().to_string(),
        new: arguments.new.as_ref().map(|new| new.display().to_string()),
    };
    context.print(&simulate(names, &functions, &starts.traces, moves.as_ref(), &models))?;
    Ok(ExitStatus::Success)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::io(path, error))
}
