//! The layouts of `reorder optimize`: of functions, of blocks, or the one that needs fewer pages.
//!
//! Takes the recorded runs; gives a proven image with the pages that they need in it.

use clap::ValueEnum;
use clap::builder::PossibleValue;

use crate::cli::apply_blocks::with_executed;
use crate::cli::apply_elf::LayoutKind;
use crate::cli::context::Context;
use crate::cli::optimize::Start;
use crate::cli::previous::{NewLayout, PreviousArguments};
use crate::cli::trades;
use crate::optimize_memories::{MadeLayouts, MemoryFaults};
use crate::optimize_report::SimulatedPages;
use reorder_base::error::{ErrorKind, Result};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_layout::memory::{self, MemoryModel};
use reorder_layout::simulate::{ImageNames, Placement, Simulation, simulate};
use reorder_layout::{LayoutRequest, Room, Traded, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::elf::apply;
use reorder_relocate::apply::{Applied, Arrangement};
use reorder_report::table::{counted, grouped};
use reorder_trace::{ExecutedBlocks, ResolvedTrace, executed_blocks};
use reorder_verify::recover_moves;

/// What is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayoutChoice {
    /// As for `apply`.
    Only(LayoutKind),
    /// Functions or blocks, by the simulated pages of the recorded runs.
    Auto,
}

impl Default for LayoutChoice {
    fn default() -> Self {
        Self::Only(LayoutKind::default())
    }
}

impl ValueEnum for LayoutChoice {
    fn value_variants<'choice>() -> &'choice [Self] {
        &[
            Self::Only(LayoutKind::Functions),
            Self::Only(LayoutKind::Blocks),
            Self::Only(LayoutKind::Both),
            Self::Auto,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Only(kind) => kind.to_possible_value(),
            Self::Auto => Some(
                PossibleValue::new("auto")
                    .help("Functions or blocks, whichever needs fewer pages in the recorded runs"),
            ),
        }
    }
}

impl LayoutChoice {
    /// The layout, unless it is to be found out.
    pub(crate) fn kind(self) -> Option<LayoutKind> {
        match self {
            Self::Only(kind) => Some(kind),
            Self::Auto => None,
        }
    }

    /// Whether functions may move.
    pub(crate) fn moves_functions(self) -> bool {
        self != Self::Only(LayoutKind::Blocks)
    }

    /// Whether functions move for certain.
    pub(crate) fn always_moves_functions(self) -> bool {
        self.kind().is_some_and(|kind| kind != LayoutKind::Blocks)
    }

    /// Whether the executed blocks must be known.
    pub(crate) fn needs_blocks(self) -> bool {
        self != Self::Only(LayoutKind::Functions)
    }
}

/// What was recorded, and how it is to be laid out.
pub(crate) struct Recorded<'run> {
    /// The program.
    pub file: &'run ElfFile<'run>,
    /// Its functions.
    pub functions: &'run ElfFunctions<'run>,
    /// The runs.
    pub starts: &'run [Start],
    /// The strategy.
    pub request: &'run LayoutRequest,
    /// The layout to stay close to.
    pub previous: &'run PreviousArguments,
}

/// A new image.
pub(crate) struct LaidOut {
    /// The image, proven.
    pub applied: Applied,
    /// Functions that recorded runs need.
    pub needed: usize,
    /// By run.
    pub simulated: Vec<SimulatedPages>,
    /// What was traded for size.
    pub traded: Traded,
    /// All runs together, in other memory; empty where one layout alone was made.
    pub memories: Vec<MemoryFaults>,
}

impl LaidOut {
    fn pages(&self) -> u64 {
        self.simulated.iter().map(|pages| pages.new_faults).sum()
    }
}

/// Makes the layout that is asked for, or the better one. `room` is there if functions may move.
///
/// # Errors
/// Refusals, malformed tables. That blocks are refused is no error where functions do as well.
pub(crate) fn laid_out(
    input: &Recorded<'_>,
    choice: LayoutChoice,
    room: Option<Analysis<'_>>,
    options: RelocateOptions,
    context: &Context,
) -> Result<LaidOut> {
    let traces: Vec<ResolvedTrace> =
        input.starts.iter().flat_map(|start| start.traces.traces.iter().cloned()).collect();
    let functions = room.map(|room| input.functions_moved(&traces, room, options, context)).transpose()?;
    if choice == LayoutChoice::Only(LayoutKind::Functions)
        && let Some((applied, needed, traded)) = functions
    {
        return Ok(LaidOut { traded, ..input.simulated(applied, needed, context)? });
    }
    let executed = executed_blocks(&traces, input.file, &input.functions.table);
    let copied = |applied: Applied| {
        let phase = context.talk.phase("copy", 0);
        let applied = with_executed(
            applied,
            (input.file, input.functions),
            (&traces, &executed),
            input.request,
            options,
            context,
        )?;
        let copies = applied.summary.clones.clone().unwrap_or_default();
        phase.finish(&format!(
            "{} functions in {} fragments, verified",
            grouped(copies.functions as u64),
            grouped(copies.fragments as u64)
        ));
        input.simulated(applied, copies.functions, context)
    };
    let unmoved = || Applied::unmoved(input.file, &input.functions.table);
    match (choice, functions) {
        (LayoutChoice::Only(LayoutKind::Both), Some((applied, _, traded))) => {
            Ok(LaidOut { traded, ..copied(applied)? })
        }
        (LayoutChoice::Auto, Some((applied, needed, traded))) => {
            let functions = LaidOut { traded, ..input.simulated(applied, needed, context)? };
            input.better(functions, copied(unmoved()), context)
        }
        _ => copied(unmoved()),
    }
}

impl Recorded<'_> {
    /// The image with functions moved, how many of them the runs need, and what was traded for size.
    fn functions_moved(
        &self,
        traces: &[ResolvedTrace],
        room: Analysis<'_>,
        options: RelocateOptions,
        context: &Context,
    ) -> Result<(Applied, usize, Traded)> {
        let phase = context.talk.phase("order", 0);
        let (functions, place, request) = (&self.functions.table, Room::InPlace(&room), self.request);
        let layout = lay_out(self.file, functions, traces, place, request)?;
        let new = NewLayout { functions, traces, room: place, request, architecture: None };
        let layout = self.previous.favour(layout, new)?;
        phase.finish(&format!(
            "{} functions of {} traces placed first",
            grouped(layout.needed as u64),
            traces.len()
        ));
        let phase = context.talk.phase("relocate", 0);
        // Functions that the strategy did not place keep their order after the others.
        let front = layout.order.get(..layout.chosen).unwrap_or(&layout.order);
        let arrangement = Arrangement::Needed(front, layout.needed);
        let options = trades::relocate_options(&layout.traded, options);
        let applied = apply(self.file, self.functions, room, arrangement, options)?;
        phase.finish(&format!(
            "{} moved, {} pinned, verified",
            grouped(applied.summary.functions_moved as u64),
            grouped(applied.summary.pinned.len() as u64)
        ));
        Ok((applied, layout.needed, layout.traded))
    }

    /// Pages of 4 KiB that each run needs, before and after.
    fn simulated(&self, applied: Applied, needed: usize, context: &Context) -> Result<LaidOut> {
        let phase = context.talk.phase("simulate", 0);
        let models = memory::default_for_elf();
        let simulations = self.simulations(&applied, models.get(..1).unwrap_or_default())?;
        let simulated = simulations.iter().map(SimulatedPages::of).collect();
        phase.finish(&counted(self.starts.len() as u64, "run"));
        Ok(LaidOut { applied, needed, simulated, traded: Traded::default(), memories: Vec::new() })
    }

    /// Each run under `models`, before and after.
    fn simulations(&self, applied: &Applied, models: &[MemoryModel]) -> Result<Vec<Simulation>> {
        let moves = recover_moves(self.file.bytes, &applied.bytes)?;
        let placement = Placement::of_elf(self.file, &applied.bytes, &moves)?;
        let simulated = self.starts.iter().map(|start| {
            let names = ImageNames { old: start.shown.clone(), new: None };
            let executed = self.executed(&start.traces.traces);
            let functions = &self.functions.table;
            simulate(names, functions, &start.traces, executed.as_ref(), Some(&placement), models)
        });
        Ok(simulated.collect())
    }

    /// The layout that needs fewer pages; on a tie that of functions, because the file keeps its size. `memories` tells
    /// what each needs in the other kinds of memory.
    fn better(&self, functions: LaidOut, blocks: Result<LaidOut>, context: &Context) -> Result<LaidOut> {
        let blocks = match blocks {
            Ok(blocks) => blocks,
            Err(error) if matches!(error.kind, ErrorKind::Refused(_)) => {
                context
                    .talk
                    .note(&format!("functions are laid out, because blocks cannot be copied: {error}"));
                return Ok(functions);
            }
            Err(error) => return Err(error),
        };
        let growth = blocks.applied.bytes.len().saturating_sub(functions.applied.bytes.len()) as u64;
        let is_better = blocks.pages() < functions.pages();
        context.talk.note(&format!(
            "{} laid out: the runs need {} pages with functions, {} with blocks, which {} the file by {} bytes",
            if is_better { "blocks are" } else { "functions are" },
            grouped(functions.pages()),
            grouped(blocks.pages()),
            if is_better { "extend" } else { "would extend" },
            grouped(growth),
        ));
        let models = memory::of_each_kind();
        let made = MadeLayouts {
            functions: &self.simulations(&functions.applied, &models)?,
            blocks: &self.simulations(&blocks.applied, &models)?,
        };
        let memories = made.in_each_memory(&models);
        Ok(LaidOut { memories, ..if is_better { blocks } else { functions } })
    }

    fn executed(&self, traces: &[ResolvedTrace]) -> Option<ExecutedBlocks> {
        let has_blocks = traces.iter().any(|trace| !trace.blocks.is_empty());
        has_blocks.then(|| executed_blocks(traces, self.file, &self.functions.table))
    }
}
