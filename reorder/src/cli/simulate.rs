//! `reorder simulate`: the page faults of recorded runs, without running anything.

use std::path::PathBuf;

use clap::Args;

use crate::cli::context::Context;
use crate::cli::scenarios_input::ScenariosInput;
use crate::cli::second_image::SecondImage;
use crate::exit_status::ExitStatus;
use reorder_base::error::Result;
use reorder_layout::simulate::{ImageNames, simulate, simulate_builds};
use reorder_system::mapped::map_image;

/// Count the page faults of recorded runs under a memory model
///
/// With NEW, both are compared: an image that `reorder apply` made from IMAGE, or any other build of it, whose functions are
/// found by their names and by their code. The traces are those of IMAGE. A function that
/// runs counts whole. Where its blocks were recorded only these count, together with the start-up code and the linker's stubs.
#[derive(Args, Debug)]
pub struct SimulateArguments {
    /// The program or shared object that was traced
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// IMAGE with its functions moved or copied, or another build of it
    #[arg(value_name = "NEW")]
    new: Option<PathBuf>,
    #[command(flatten)]
    scenarios: ScenariosInput,
}

/// Runs the command.
///
/// # Errors
/// Unreadable or refused images, traces that do not fit, and a NEW that is neither IMAGE with functions moved nor another build.
pub fn run(arguments: &SimulateArguments, context: &Context) -> Result<ExitStatus> {
    let path = &arguments.image;
    let bytes = map_image(path)?;
    let configured = arguments.scenarios.configured(&context.talk)?;
    let image = arguments.scenarios.open_traced(path, &bytes, &configured)?;
    let functions = image.functions();
    let models = arguments.scenarios.models(None, &image, &configured)?;
    let starts = arguments.scenarios.resolve(path, &image, &functions, &configured, &context.talk)?;
    let new = arguments.new.as_deref();
    let names = ImageNames::of(path, new);
    let second = SecondImage::open(&arguments.scenarios, (path, &bytes), &functions, &starts.traces, new)?;
    if let Some(SecondImage::Build(other)) = &second {
        context.print(&simulate_builds(names, &functions, &starts.traces, other, &models))?;
        return Ok(ExitStatus::Success);
    }
    let placement = second.as_ref().map(|second| second.placement(&image)).transpose()?.flatten();
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
