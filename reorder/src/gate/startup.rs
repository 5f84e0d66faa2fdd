//! What each start runs, in terms that outlive a build: names, sizes and places of functions, in order of first execution.
//!
//! In: an image's functions and its scenarios. Out: [`Startup`], which the baseline keeps, so that a later run can tell
//! which functions a difference comes from.

use std::collections::HashMap;

use layout_algos::score::Span;
use rayon::prelude::*;

use crate::image::functions::{FunctionIndex, FunctionTable};
use crate::scenario::Scenario;
use crate::simulate::MemoryModel;
use crate::trace::{readable_name, root_name};

/// A function that some start runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupFunction {
    /// Readable, without what differs from build to build; namesakes but the first have a number behind: `name #2`.
    pub name: String,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
}

impl StartupFunction {
    /// Where it is.
    #[must_use]
    pub fn span(&self) -> Span {
        Span { start: self.address, end: self.address.saturating_add(self.size) }
    }
}

/// One start: positions in the table of functions, in order of first execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupScenario {
    /// As in `reorder.toml`.
    pub name: String,
    /// Of its first recording.
    pub order: Vec<u32>,
}

/// All starts of one build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Startup {
    /// Sorted by address.
    pub functions: Vec<StartupFunction>,
    /// Sorted by name.
    pub scenarios: Vec<StartupScenario>,
}

impl Startup {
    /// What the first recording of each scenario runs.
    #[must_use]
    pub fn of(functions: &FunctionTable<'_>, scenarios: &[Scenario<'_>]) -> Self {
        let mut indices: Vec<FunctionIndex> = scenarios
            .iter()
            .filter_map(|scenario| scenario.traces.first())
            .flat_map(|trace| trace.functions.iter().copied())
            .collect();
        indices.sort_unstable();
        indices.dedup();
        let position = |index: &FunctionIndex| indices.binary_search(index).ok().map(|place| place as u32);
        let scenarios = scenarios.iter().map(|scenario| StartupScenario {
            name: scenario.name.clone(),
            order: scenario
                .traces
                .first()
                .map_or_else(Vec::new, |trace| trace.functions.iter().filter_map(position).collect()),
        });
        Self { scenarios: scenarios.collect(), functions: named(functions, &indices) }
    }

    /// The scenario of this name.
    #[must_use]
    pub fn scenario(&self, name: &str) -> Option<&StartupScenario> {
        self.scenarios.iter().find(|scenario| scenario.name == name)
    }

    /// By position in the order of `scenario`, how many faults its functions cause by running first.
    #[must_use]
    pub fn faults(&self, scenario: &StartupScenario, model: &MemoryModel) -> Vec<u64> {
        let spans = scenario.order.iter().map(|&place| self.functions[place as usize].span());
        let curve = model.model.faults(spans);
        let mut before = 0;
        let since = |&after: &u64| after - std::mem::replace(&mut before, after);
        curve.after_each().iter().map(since).collect()
    }
}

/// Names count all functions of the image, not only those that ran: whether a namesake runs must not rename another.
fn named(functions: &FunctionTable<'_>, indices: &[FunctionIndex]) -> Vec<StartupFunction> {
    let name = |index: u32| {
        let name = functions.names_at(functions.get(FunctionIndex(index)).start).next();
        name.map_or_else(
            || functions.display_name(FunctionIndex(index)),
            |name| readable_name(root_name(name)),
        )
    };
    let names: Vec<String> = (0..functions.len() as u32).into_par_iter().map(name).collect();
    let mut seen: HashMap<&str, u32> = HashMap::new();
    let mut wanted = indices.iter().peekable();
    let mut found = Vec::with_capacity(indices.len());
    for ((index, function), name) in functions.iter().zip(&names) {
        let count = seen.entry(name).or_default();
        *count += 1;
        if wanted.next_if_eq(&&index).is_some() {
            let name = if *count > 1 { format!("{name} #{count}") } else { name.clone() };
            found.push(StartupFunction { name, address: function.start.0, size: function.size() });
        }
    }
    found
}
