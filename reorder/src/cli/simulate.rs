//! `reorder simulate`: the page faults of recorded runs, without running anything.

use std::path::PathBuf;

use clap::Args;

use crate::cli::context::Context;
use crate::cli::scenarios_input::ScenariosInput;
use crate::exit_status::ExitStatus;
use reorder_base::error::Result;
use reorder_layout::simulate::{ImageNames, simulate};
use reorder_system::mapped::map_image;

/// Count the page faults of recorded runs under a memory model
///
/// With NEW, an image that `reorder apply` made from IMAGE, both are compared. The traces are those of IMAGE. Functions count
/// whole, unless they were recorded with their basic blocks.
#[derive(Args, Debug)]
pub struct SimulateArguments {
    /// The program or shared object that was traced
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// IMAGE with its functions moved or copied
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
    let bytes = map_image(path)?;
    let image = arguments.scenarios.open(path, &bytes)?;
    let functions = image.functions();
    let configured = arguments.scenarios.configured(&context.talk)?;
    let models = arguments.scenarios.models(None, &image, &configured)?;
    let starts = arguments.scenarios.resolve(path, &image, &functions, &configured, &context.talk)?;
    let new = arguments.new.as_deref();
    let new_image = arguments.scenarios.new_image(path, &bytes, new)?;
    let placement = new_image.as_ref().map(|new| new.placement(&image)).transpose()?;
    let names = ImageNames::of(path, new);
    let executed = image.executed(&starts.traces.traces, &functions);
    context.print(&simulate(
        names,
        &functions,
        &starts.traces,
        executed.as_ref(),
        placement.as_ref(),
        &models,
    ))?;
    Ok(ExitStatus::Success)
}
