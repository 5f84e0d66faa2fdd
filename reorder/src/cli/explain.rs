//! `reorder explain`: everything about one function.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::address::Address;
use crate::apply::without_room;
use crate::cli::context::Context;
use crate::cli::layout_args::LayoutArguments;
use crate::cli::scenarios_input::{ScenariosInput, Starts};
use crate::error::{Error, ErrorKind, Result};
use crate::exit_status::ExitStatus;
use crate::explain::{ExplainReport, Explainer, Knowledge, find};
use crate::image::analysis::Analysis;
use crate::image::analysis::pins::Pin;
use crate::image::elf::file::ElfFile;
use crate::image::functions::{FunctionIndex, FunctionTable};
use crate::image::mapped::map_image;
use crate::image::references::References;
use crate::layout::{Room, lay_out};
use crate::opened::OpenedImage;
use crate::relocate::plan::plan;
use crate::verify::recover_moves;

const EXAMPLES: &str = "\
Examples:
  reorder explain ./program parse_options -t traces
  reorder explain ./program 'Config::load' 0x41a0 -t traces
  reorder explain ./program main -t traces --new program.fast";

/// Tell where a function is, when it runs, and why it is placed where it is or what pins it
///
/// Functions are named by symbol, by readable name or a part of it, or by an address inside. Without --new the places are
/// those that `reorder apply` would give with the same options.
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct ExplainArguments {
    /// The program or shared object
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Functions
    #[arg(value_name = "SYMBOL", required = true)]
    symbols: Vec<String>,
    /// The same image with its functions moved
    #[arg(long, value_name = "FILE", conflicts_with_all = ["strategy", "seed", "memory", "early", "effort", "unseen", "compress"])]
    new: Option<PathBuf>,
    #[command(flatten)]
    scenarios: ScenariosInput,
    #[command(flatten)]
    layout: LayoutArguments,
}

/// Where everything goes, and who says so.
struct NewPlaces {
    starts: Vec<Address>,
    /// Functions, ascending, that had to stay for want of room.
    without_room: Vec<(FunctionIndex, Pin)>,
    name: String,
}

/// Explains and prints.
///
/// # Errors
/// Unreadable images and traces, and words that mean no function.
pub fn run(arguments: &ExplainArguments, context: &Context) -> Result<ExitStatus> {
    let path = &arguments.image;
    let in_image = |error: Error| error.in_file(path);
    let bytes = map_image(path)?;
    let image = OpenedImage::parse(&bytes, arguments.scenarios.architecture.as_deref()).map_err(in_image)?;
    let functions = image.functions().map_err(in_image)?;
    let mut wanted = Vec::new();
    for symbol in &arguments.symbols {
        wanted.extend(find(symbol, &functions).map_err(in_image)?);
    }
    let configured = arguments.scenarios.configured(&context.talk)?;
    let models = arguments.scenarios.models(None, &image, &configured)?;
    let Some(model) = models.first() else { return Err(Error::usage("no model of memory is given")) };
    let starts = arguments.scenarios.resolve(path, &image, &functions, &configured, &context.talk)?;
    let scenarios = starts.sources.group(&starts.traces);
    let mut limits = Vec::new();
    let analysis = analysis(&image, &functions, &mut limits).map_err(in_image)?;
    let references = match image.relocatable() {
        Some(file) => Some(References::extract(file, &functions).map_err(in_image)?.graph),
        None => None,
    };
    let new = match (&arguments.new, image.relocatable(), &analysis) {
        (Some(new), ..) => Some(moved(new, &bytes, &functions)?),
        (None, Some(file), Some(analysis)) => Some(arguments.planned(file, &functions, analysis, &starts)?),
        _ => None,
    };
    let explainer = Explainer::new(Knowledge {
        functions: &functions,
        scenarios: &scenarios,
        model,
        new_starts: new.as_ref().map(|new| new.starts.as_slice()),
        analysis: analysis.as_ref(),
        without_room: new.as_ref().map_or(&[], |new| new.without_room.as_slice()),
        references: references.as_ref(),
    });
    context.print(&ExplainReport {
        image: path.display().to_string(),
        new: new.as_ref().map(|new| new.name.clone()),
        model: model.name.clone(),
        functions: wanted.into_iter().map(|index| explainer.explain(index)).collect(),
        limits,
    })?;
    Ok(ExitStatus::Success)
}

/// What is pinned; nothing, and a limit, where that cannot be told.
fn analysis<'image>(
    image: &'image OpenedImage<'_>,
    functions: &FunctionTable<'image>,
    limits: &mut Vec<String>,
) -> Result<Option<Analysis<'image>>> {
    let Some(file) = image.relocatable() else {
        limits.push("this kind of image is not relocated yet, so nothing is known about its pins".to_owned());
        return Ok(None);
    };
    match Analysis::new(file, functions) {
        Ok(analysis) => Ok(Some(analysis)),
        Err(Error { kind: ErrorKind::Refused(refusal), .. }) => {
            limits.push(format!("the image is not relocated: {refusal}; {}", refusal.cure));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn moved(new: &Path, bytes: &[u8], functions: &FunctionTable<'_>) -> Result<NewPlaces> {
    let moves = recover_moves(bytes, &map_image(new)?).map_err(|error| {
        error.in_file(new).with_hint("give an image that `reorder apply` made of the first")
    })?;
    let starts = functions.iter().map(|(_, function)| Address(moves.map(function.start).0)).collect();
    Ok(NewPlaces { starts, without_room: Vec::new(), name: new.display().to_string() })
}

impl ExplainArguments {
    /// Where `reorder apply` would put everything.
    fn planned(
        &self,
        file: &ElfFile<'_>,
        functions: &FunctionTable<'_>,
        analysis: &Analysis<'_>,
        starts: &Starts,
    ) -> Result<NewPlaces> {
        let request = self.layout.request();
        let traces = &starts.traces;
        let layout = lay_out(file, functions, &traces.traces, Room::InPlace(analysis), &request)?
            .with_hot(&traces.counts, functions);
        let front = layout.order.get(..layout.chosen).unwrap_or(&layout.order);
        let plan = plan(analysis, functions, front, layout.needed)?;
        let starts = functions.iter().map(|(_, function)| Address(plan.map.map(function.start).0)).collect();
        Ok(NewPlaces {
            starts,
            without_room: without_room(functions, analysis, &plan),
            name: format!("the image that `reorder apply` would make ({})", request.strategy.name()),
        })
    }
}
