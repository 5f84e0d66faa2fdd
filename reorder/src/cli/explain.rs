//! `reorder explain`: everything about one function.

use std::path::PathBuf;

use clap::Args;

use crate::cli::context::Context;
use crate::cli::scenarios_input::{ScenariosInput, Starts};
use crate::exit_status::ExitStatus;
use crate::explain::{ExplainReport, Explainer, Knowledge, find};
use crate::hints;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::pins::Pin;
use reorder_image::references::References;
use reorder_layout::arguments::LayoutArguments;
use reorder_layout::opened::{OpenedAnalysis, OpenedImage, Stays};
use reorder_layout::{Room, lay_out, lay_out_functions_in};
use reorder_relocate::apply::elf::without_room;
use reorder_relocate::elf::plan::plan;
use reorder_relocate::{self as relocate, apply};
use reorder_system::mapped::map_image;

const EXAMPLES: &str = "\
Examples:
  reorder explain ./program parse_options -t traces
  reorder explain ./program 'Config::load' 0x41a0 -t traces
  reorder explain ./program main -t traces --new program.fast";

/// Show where a function is, when it runs, and why it is placed there or what pins it
///
/// Functions are named by symbol, by demangled name or a part of it, or by an address inside them. Without --new, the new
/// places are those that `reorder apply` would choose with the same options.
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct ExplainArguments {
    /// The program or shared object
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Functions to explain
    #[arg(value_name = "SYMBOL", required = true)]
    symbols: Vec<String>,
    /// IMAGE with its functions moved or copied
    #[arg(long, value_name = "FILE", conflicts_with_all = ["strategy", "seed", "memory", "early", "effort", "unseen", "compress"])]
    new: Option<PathBuf>,
    #[command(flatten)]
    scenarios: ScenariosInput,
    #[command(flatten)]
    layout: LayoutArguments,
}

/// Where everything goes, and what this is taken from.
struct NewPlaces {
    starts: Vec<Address>,
    /// Functions, ascending, that stay because there is no room for them elsewhere.
    without_room: Vec<(FunctionIndex, Pin)>,
    name: String,
}

/// Explains and prints.
///
/// # Errors
/// Unreadable images and traces, and words that match no function.
pub fn run(arguments: &ExplainArguments, context: &Context) -> Result<ExitStatus> {
    let path = &arguments.image;
    let in_image = |error: Error| error.in_file(path);
    let bytes = map_image(path)?;
    let configured = arguments.scenarios.configured(&context.talk)?;
    let image = arguments.scenarios.open_traced(path, &bytes, &configured)?;
    let functions = image.functions();
    let mut wanted = Vec::new();
    for symbol in &arguments.symbols {
        wanted.extend(find(symbol, &functions).map_err(in_image)?);
    }
    let models = arguments.scenarios.models(None, &image, &configured)?;
    let Some(model) = models.first() else {
        return Err(Error::usage("no memory model is given").with_hint("name one: --model linux-4k"));
    };
    let starts = arguments.scenarios.resolve(path, &image, &functions, &configured, &context.talk)?;
    let scenarios = starts.sources.group(&starts.traces);
    let mut limits = Vec::new();
    let analysis = analysis(&image, &mut limits).map_err(in_image)?;
    let references = match image.elf_for_x86_64() {
        Some(file) => Some(References::extract(file, &functions).map_err(in_image)?.graph),
        None => None,
    };
    let new = arguments.scenarios.new_image(path, &bytes, arguments.new.as_deref())?;
    let moves = new.map(|new| new.moves);
    let executed = image.executed(&starts.traces.traces, &functions);
    let new = match (arguments.new.as_ref().zip(moves.as_ref()), &analysis) {
        (Some((new, moves)), _) => {
            let starts = functions.iter().map(|(_, function)| Address(moves.map(function.start).0)).collect();
            Some(NewPlaces { starts, without_room: Vec::new(), name: new.display().to_string() })
        }
        (None, Some(analysis)) => Some(arguments.planned(&image, &functions, analysis, &starts)?),
        (None, None) => None,
    };
    let explainer = Explainer::new(Knowledge {
        functions: &functions,
        scenarios: &scenarios,
        model,
        new_starts: new.as_ref().map(|new| new.starts.as_slice()),
        executed: executed.as_ref(),
        moves: moves.as_ref(),
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

/// What is pinned; `None`, and a limit, where that cannot be determined.
fn analysis<'image>(
    image: &'image OpenedImage<'_>,
    limits: &mut Vec<String>,
) -> Result<Option<OpenedAnalysis<'image>>> {
    match image.analysis()? {
        Ok(analysis) => Ok(Some(analysis)),
        Err(Stays::UnknownKind) => {
            limits.push("this kind of image cannot be relocated yet, so its pins are unknown".to_owned());
            Ok(None)
        }
        Err(Stays::Refused(refusal)) => {
            limits.push(format!("the image is not relocated: {refusal}; {}", hints::text(&refusal.cure)));
            Ok(None)
        }
    }
}

impl ExplainArguments {
    /// Where `reorder apply` would put everything.
    fn planned(
        &self,
        image: &OpenedImage<'_>,
        functions: &FunctionTable<'_>,
        analysis: &OpenedAnalysis<'_>,
        starts: &Starts,
    ) -> Result<NewPlaces> {
        let request = self.layout.request(image.default_memory());
        let traces = &starts.traces;
        let laid_out = match analysis {
            OpenedAnalysis::Elf { file, analysis, .. } => {
                lay_out(file, functions, &traces.traces, Room::InPlace(analysis), &request)
            }
            OpenedAnalysis::MachO(analysis) => {
                lay_out_functions_in(functions, &traces.traces, Room::InMachO(analysis), &request)
            }
        };
        let layout = laid_out?.with_hot(&traces.counts, functions);
        let front = layout.order.get(..layout.chosen).unwrap_or(&layout.order);
        let (map, without_room) = match analysis {
            OpenedAnalysis::Elf { functions: elf, analysis, .. } => {
                let plan = plan(analysis, elf, front, layout.needed)?;
                (plan.map.clone(), without_room(functions, analysis, &plan))
            }
            OpenedAnalysis::MachO(analysis) => {
                let (wanted, count) = relocate::macho::plan::unit_order(analysis, functions, front);
                let plan = relocate::macho::plan::plan(analysis, &wanted, count)?;
                let without_room = apply::macho::without_room(functions, analysis, &plan);
                (plan.map, without_room)
            }
        };
        let starts = functions.iter().map(|(_, function)| Address(map.map(function.start).0)).collect();
        Ok(NewPlaces {
            starts,
            without_room,
            name: format!("the image that `reorder apply` would make ({})", request.strategy.name()),
        })
    }
}
