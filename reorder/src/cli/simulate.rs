//! `reorder simulate`: the page faults of recorded runs, without running anything.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::context::Context;
use crate::cli::scenarios_input::ScenariosInput;
use crate::exit_status::ExitStatus;
use reorder_base::error::Result;
use reorder_image::functions::FunctionTable;
use reorder_layout::simulate::{ImageNames, OtherBuild, simulate, simulate_builds};
use reorder_system::mapped::map_image;
use reorder_trace::ResolvedTraces;

/// Count the page faults of recorded runs under a memory model
///
/// With NEW, both are compared: an image that `reorder apply` made from IMAGE, or any other build of it, whose functions are
/// found by their names and by their code. The traces are those of IMAGE. Functions count whole, unless they were recorded
/// with their basic blocks.
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
    let image = arguments.scenarios.open(path, &bytes)?;
    let functions = image.functions();
    let configured = arguments.scenarios.configured(&context.talk)?;
    let models = arguments.scenarios.models(None, &image, &configured)?;
    let starts = arguments.scenarios.resolve(path, &image, &functions, &configured, &context.talk)?;
    let new = arguments.new.as_deref();
    let names = ImageNames::of(path, new);
    let new_image = match arguments.scenarios.new_image(path, &bytes, new) {
        Ok(new_image) => new_image,
        Err(error) => {
            let other =
                new.map(|new| other_build(arguments, new, &functions, &starts.traces)).transpose()?.flatten();
            // What has hardly a function in common is no build of the same program.
            let other = other.ok_or(error)?;
            context.print(&simulate_builds(names, &functions, &starts.traces, &other, &models))?;
            return Ok(ExitStatus::Success);
        }
    };
    let placement = new_image.as_ref().map(|new| new.placement(&image)).transpose()?;
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

/// The image at `new` as another build, if most of the functions that ran are in it.
fn other_build(
    arguments: &SimulateArguments,
    new: &Path,
    functions: &FunctionTable<'_>,
    traces: &ResolvedTraces,
) -> Result<Option<OtherBuild>> {
    let bytes = map_image(new)?;
    let image = arguments.scenarios.open(new, &bytes)?;
    let new_functions = image.functions();
    let other = OtherBuild::new(functions, &new_functions);
    let pairs = other.pairs(traces);
    Ok((pairs.missing * 2 <= pairs.functions).then_some(other))
}
