//! What each scenario runs, in terms that outlive a build: names, sizes and addresses of functions, in order of first
//! execution.
//!
//! In: an image's functions and its scenarios. Out: [`Startup`], which the baseline keeps, so that a later run can tell
//! which functions a difference comes from.

use layout_algos::score::Span;
use rayon::prelude::*;

use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_layout::memory::MemoryModel;
use reorder_layout::scenario::Scenario;
use reorder_trace::{readable_name, root_name};

/// A function that some scenario runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupFunction {
    /// Demangled, without the parts that differ from build to build; several functions may share it.
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

/// One scenario: positions in the table of functions, in order of first execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupScenario {
    /// As in `reorder.toml`.
    pub name: String,
    /// Of its first recording.
    pub order: Vec<u32>,
}

/// All scenarios of one build.
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

fn named(functions: &FunctionTable<'_>, indices: &[FunctionIndex]) -> Vec<StartupFunction> {
    let named = |&index: &FunctionIndex| {
        let function = functions.get(index);
        let name = functions.names_at(function.start).next();
        let name = name.map_or_else(|| functions.display_name(index), stable_name);
        StartupFunction { name, address: function.start.0, size: function.size() }
    };
    indices.par_iter().map(named).collect()
}

/// The demangled name, without hashes and without the numbers that compilers append to names that they used twice: those
/// depend on everything else in the build.
fn stable_name(name: &[u8]) -> String {
    let readable = readable_name(root_name(name));
    match readable.rsplit_once('.') {
        Some((stem, number)) if !stem.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => {
            stem.to_owned()
        }
        _ => readable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outlive_builds() {
        for (name, stable) in [
            (&b"helper"[..], "helper"),
            (b"helper.3", "helper"),
            (b"helper.llvm.123456", "helper"),
            (b"helper.cold", "helper.cold"),
            (b".5", ".5"),
            (b"_ZN5hexyl3run17h0123456789abcdefE", "hexyl::run"),
            (b"_ZN5hexyl3run17h0123456789abcdefE.658", "hexyl::run"),
        ] {
            assert_eq!(stable_name(name), stable);
        }
    }
}
