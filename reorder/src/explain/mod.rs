//! One function: where it is, when it runs, why it is placed there.
//!
//! In: an image's functions, its scenarios, and where the functions are or would be after relocation. Out: an
//! [`ExplainedFunction`], facts and the reasons that follow from them. The inner state of the strategy is not used, so the
//! answer holds for any layout, however it was computed.

mod bare;
mod blocks;
mod find;
mod neighbours;
mod placement;
mod report;

use layout_algos::problem::ReferenceGraph;
use layout_algos::score::Span;
use reorder_base::address::Address;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::pins::Pin;
use reorder_layout::memory::MemoryModel;
use reorder_layout::opened::OpenedAnalysis;
use reorder_layout::scenario::Scenario;
use reorder_layout::simulate::placed;
use reorder_report::visible::visible_start;
use reorder_trace::{ExecutedBlocks, ResolvedTrace, readable_name};
use reorder_verify::AddressMoves;

pub use blocks::{ExplainedBlocks, Part};
pub use find::find;
pub use neighbours::Neighbour;
pub use placement::{Placed, PlacementReason};
pub(crate) use report::ExplainReport;
pub use report::{ExplainedFunction, ExplainedPin, Run, Side};

use blocks::Parts;
use neighbours::Places;

/// Longer names are cut, in sentences too: a template's name may have thousands of characters.
const MAX_NAME_LENGTH: usize = 400;

/// What answers come from.
#[derive(Clone, Copy)]
pub struct Knowledge<'files> {
    /// All functions of the image.
    pub functions: &'files FunctionTable<'files>,
    /// The scenarios.
    pub scenarios: &'files [Scenario<'files>],
    /// How faults are counted.
    pub model: &'files MemoryModel,
    /// By function, where it is after relocation; `None` without relocation.
    pub new_starts: Option<&'files [Address]>,
    /// The executed blocks of all traces, where these have any.
    pub executed: Option<&'files ExecutedBlocks>,
    /// Where code is in the new image, if there is one.
    pub moves: Option<&'files AddressMoves>,
    /// What is pinned, where that is known.
    pub analysis: Option<&'files OpenedAnalysis<'files>>,
    /// Functions, ascending, that are not pinned but for which there is no room elsewhere, where that is known.
    pub without_room: &'files [(FunctionIndex, Pin)],
    /// What refers to what, where that is known.
    pub references: Option<&'files ReferenceGraph>,
}

/// Answers for several functions of one image.
pub(crate) struct Explainer<'files> {
    knowledge: Knowledge<'files>,
    old: Places,
    new: Option<Places>,
    /// By function, in which scenarios it runs, as positions.
    runs_in: Vec<Vec<u32>>,
    /// What runs of each function.
    parts: Parts,
}

impl<'files> Explainer<'files> {
    /// Sorts what the answers need.
    #[must_use]
    pub(crate) fn new(knowledge: Knowledge<'files>) -> Self {
        let functions = knowledge.functions;
        let starts: Vec<Address> = functions.iter().map(|(_, function)| function.start).collect();
        let mut runs_in = vec![Vec::new(); functions.len()];
        for (position, scenario) in (0..).zip(knowledge.scenarios) {
            for index in scenario.traces.iter().flat_map(|trace| &trace.functions) {
                let of_function: &mut Vec<u32> = &mut runs_in[index.0 as usize];
                if of_function.last() != Some(&position) {
                    of_function.push(position);
                }
            }
        }
        let old = Places::new(functions, &starts);
        let new = knowledge.new_starts.map(|starts| Places::new(functions, starts));
        let parts = knowledge.executed.map_or_else(Parts::default, Parts::of);
        Self { knowledge, old, new, runs_in, parts }
    }

    /// All that is known of the function.
    #[must_use]
    pub(crate) fn explain(&self, index: FunctionIndex) -> ExplainedFunction {
        let Knowledge { functions, model, .. } = self.knowledge;
        let function = functions.get(index);
        let names: Vec<&[u8]> = functions.names_at(function.start).collect();
        let page_bytes = model.page_bytes();
        let side = |places: &Places| Side {
            address: places.start(index),
            pages: places.pages(index, functions, page_bytes),
            before: self.neighbours(places.before(index)),
            after: self.neighbours(places.after(index)),
            page_mates: places.page_mates(index, functions, page_bytes).len() as u64,
        };
        ExplainedFunction {
            name: self.readable(index),
            symbols: names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect(),
            size_bytes: function.size(),
            old: side(&self.old),
            new: self.new.as_ref().map(side),
            runs: self.runs(index),
            blocks: self.parts.explained(index, functions, self.knowledge.moves),
            scenarios: self.knowledge.scenarios.len() as u64,
            pin: self.pin(index).map(|pin| ExplainedPin {
                reason: pin.reason,
                because: pin.reason.to_string(),
                evidence: pin.evidence,
            }),
            placement: self.placement(index),
        }
    }

    fn readable(&self, index: FunctionIndex) -> String {
        let functions = self.knowledge.functions;
        let name = functions.names_at(functions.get(index).start).next();
        let name = name.map_or_else(|| functions.display_name(index), readable_name);
        visible_start(&name, MAX_NAME_LENGTH).into_owned()
    }

    /// Why it stays.
    fn pin(&self, index: FunctionIndex) -> Option<Pin> {
        let Knowledge { functions, analysis, without_room, .. } = self.knowledge;
        let pin = analysis.and_then(|analysis| analysis.pin_at(functions.get(index).start));
        let of_room = || {
            let at = without_room.binary_search_by_key(&index, |(function, _)| *function).ok()?;
            Some(without_room[at].1)
        };
        pin.or_else(of_room)
    }

    fn neighbours(&self, indices: Vec<FunctionIndex>) -> Vec<Neighbour> {
        let neighbour = |index: FunctionIndex| Neighbour {
            name: self.readable(index),
            size_bytes: self.knowledge.functions.get(index).size(),
            scenarios: self.runs_in[index.0 as usize].len() as u64,
        };
        indices.into_iter().map(neighbour).collect()
    }

    /// One entry for each scenario in which the function runs.
    fn runs(&self, index: FunctionIndex) -> Vec<Run> {
        let scenarios = self.knowledge.scenarios;
        let of_scenario = |&position: &u32| {
            let scenario = scenarios.get(position as usize)?;
            let ranks: Vec<Option<usize>> = scenario
                .traces
                .iter()
                .map(|trace| trace.functions.iter().position(|one| *one == index))
                .collect();
            let (first, rank) =
                ranks.iter().enumerate().find_map(|(trace, rank)| rank.map(|rank| (trace, rank)))?;
            let trace = scenario.traces[first];
            Some(Run {
                scenario: scenario.name.clone(),
                traces: ranks.iter().flatten().count() as u64,
                of_traces: ranks.len() as u64,
                rank: rank as u64 + 1,
                of_functions: trace.functions.len() as u64,
                nanoseconds: trace.nanoseconds.get(rank).copied(),
                faults: self.faults(trace, rank, false),
                new_faults: self.new.as_ref().map(|_| self.faults(trace, rank, true)),
            })
        };
        self.runs_in[index.0 as usize].iter().filter_map(of_scenario).collect()
    }

    /// Faults that happen because the function at `rank` runs, in the order of `trace`.
    fn faults(&self, trace: &ResolvedTrace, rank: usize, is_new: bool) -> u64 {
        let Knowledge { functions, moves, new_starts, model, .. } = self.knowledge;
        let code = |&index: &FunctionIndex| -> Vec<Span> {
            let code = self.parts.code(index, functions);
            match (is_new, moves, new_starts) {
                (false, ..) | (true, None, None) => code,
                (true, Some(moves), _) => code.into_iter().flat_map(|span| placed(span, moves)).collect(),
                (true, None, Some(starts)) => {
                    let (old, new) = (functions.get(index).start.0, starts[index.0 as usize].0);
                    let moved = |address: u64| new.saturating_add(address.saturating_sub(old));
                    let moved = |span: Span| Span { start: moved(span.start), end: moved(span.end) };
                    code.into_iter().map(moved).collect()
                }
            }
        };
        let faults =
            |count: usize| model.model.faults(trace.functions.iter().take(count).flat_map(code)).total();
        faults(rank + 1).saturating_sub(faults(rank))
    }
}
