//! Programs of any size with recorded runs, to measure how fast they are ordered.
//!
//! Built like the real ones: a core that every run executes, families of functions of which each run executes a few,
//! and some that only this run executes; what runs together is in short sequences of the link order. Functions refer to
//! near ones mostly, to popular ones sometimes, and to tables of functions. The same description always gives the
//! same problem.

use layout_algos::ids::FunctionId;
use layout_algos::problem::{LayoutProblem, NodeId, Reference, ReferenceGraph, ReferenceKind, Rows, Trace};
use layout_algos::random::Random;

/// Size of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Number of functions.
    pub functions: u32,
    /// Number of recorded runs, all of weight 1.
    pub traces: u32,
    /// Functions that each run executes; at most all of them.
    pub events: u32,
}

/// Functions that are adjacent in link order and are executed together.
const MODULE: u32 = 16;

/// Share of the core in a run, and share of one family, in per cent.
const CORE_PERCENT: usize = 30;
const FAMILY_PERCENT: usize = 20;

/// Families that one run executes.
const FAMILIES_PER_TRACE: usize = 3;

/// Per cent of the core and of its families that a run really executes.
const KEPT_PERCENT: u64 = 92;

/// A table of functions for this many functions, and its length.
const FUNCTIONS_PER_TABLE: u32 = 10;
const TABLE_LENGTH: u64 = 8;

/// A hash for this many bytes of content; one piece of content for this many functions; per cent of a function's hashes
/// that are taken from there, the rest being its own or, as often, common to all functions.
const BYTES_PER_HASH: u64 = 4;
const FUNCTIONS_PER_CONTENT: u32 = 8;
const COPIED_PERCENT: u64 = 40;

/// Different hashes of content that all functions have in common.
const COMMON_HASHES: u64 = 1000;

/// The independent choices of a program.
#[derive(Clone, Copy)]
enum Stream {
    Sizes,
    Modules,
    References,
    Contents,
    Starts,
}

impl Program {
    /// The program with its runs and references.
    ///
    /// # Errors
    /// A sentence when the description exceeds what a problem can hold.
    pub fn problem(self) -> Result<LayoutProblem, String> {
        self.problem_with(&self.starts())
    }

    /// The program with other runs.
    ///
    /// # Errors
    /// A sentence when the runs do not fit the program.
    pub fn problem_with(self, starts: &[Trace]) -> Result<LayoutProblem, String> {
        let references = self.references().ok_or("too many references")?;
        LayoutProblem::new(self.sizes(), starts)
            .and_then(|problem| problem.with_references(references))
            .map_err(|error| error.to_string())
    }

    /// The recorded runs.
    #[must_use]
    pub fn starts(self) -> Vec<Trace> {
        let stream = self.modules();
        let events = self.events.min(self.functions) as usize;
        let core = (events * CORE_PERCENT / 100).min(stream.len());
        let family = (events * FAMILY_PERCENT / 100).max(1);
        let families: Vec<&[FunctionId]> =
            stream[core..].chunks(family).take(4 + self.traces as usize / 8).collect();
        let mut last_start = vec![u32::MAX; self.functions as usize];
        (0..self.traces)
            .map(|number| {
                let mut random = self.random(Stream::Starts, u64::from(number));
                let mut functions = Vec::with_capacity(events);
                let mut run = |function: FunctionId| {
                    let is_new = last_start[function.index()] != number && functions.len() < events;
                    if is_new {
                        last_start[function.index()] = number;
                        functions.push(function);
                    }
                };
                let chosen = (0..FAMILIES_PER_TRACE)
                    .filter_map(|_| families.get(random.below(families.len() as u64) as usize).copied())
                    .collect::<Vec<_>>();
                for &function in stream[..core].iter().chain(chosen.into_iter().flatten()) {
                    if random.below(100) < KEPT_PERCENT {
                        run(function);
                    }
                }
                // The rest: sequences from anywhere, then functions that have not run yet.
                for _ in 0..events {
                    let first = random.below(u64::from(self.functions)) as u32;
                    let end = self.functions.min(first + 1 + random.below(u64::from(MODULE)) as u32);
                    (first..end).map(FunctionId).for_each(&mut run);
                }
                (0..self.functions).map(FunctionId).for_each(&mut run);
                for position in 1..functions.len() {
                    functions.swap(position, position.saturating_sub(random.below(4) as usize));
                }
                Trace { weight: 1, functions }
            })
            .collect()
    }

    /// Hashes of the content of each function, as many as there are in real code: close and far copies.
    #[must_use]
    pub fn fingerprints(self) -> Option<Rows<u32>> {
        let mut random = self.random(Stream::Contents, 0);
        let contents = u64::from(self.functions.div_ceil(FUNCTIONS_PER_CONTENT));
        let mut rows = Rows::default();
        for size in self.sizes() {
            let content = random.below(contents);
            let hash = |number: u64, random: &mut Random| match random.below(100) {
                0..COPIED_PERCENT => {
                    self.random(Stream::Contents, (content << 32) | (number + 1)).next_u64() as u32
                }
                other if other % 2 == 0 => random.below(COMMON_HASHES) as u32,
                _ => random.next_u64() as u32,
            };
            let mut row: Vec<u32> =
                (0..size.div_ceil(BYTES_PER_HASH)).map(|number| hash(number, &mut random)).collect();
            row.sort_unstable();
            row.dedup();
            rows.push(row).ok()?;
        }
        Some(rows)
    }

    /// Sizes in bytes: many small functions, few large ones, 300 bytes on average.
    fn sizes(self) -> Vec<u64> {
        let mut random = self.random(Stream::Sizes, 0);
        (0..self.functions)
            .map(|_| {
                let magnitude = 4 + random.below(4) + random.below(4);
                (1 << magnitude) + random.below(1 << magnitude)
            })
            .collect()
    }

    /// Half of the functions, in an order that keeps those of a module together.
    fn modules(self) -> Vec<FunctionId> {
        let mut random = self.random(Stream::Modules, 0);
        let mut modules: Vec<u32> = (0..self.functions.div_ceil(MODULE)).collect();
        random.shuffle(&mut modules);
        let members = |module: u32| module * MODULE..self.functions.min((module + 1) * MODULE);
        modules.into_iter().flat_map(members).filter(|_| random.below(2) == 0).map(FunctionId).collect()
    }

    fn references(self) -> Option<ReferenceGraph> {
        let mut random = self.random(Stream::References, 0);
        let tables = self.functions / FUNCTIONS_PER_TABLE;
        let mut rows = Rows::with_capacity((self.functions + tables) as usize, self.functions as usize * 9);
        for function in 0..self.functions {
            let count = random.below(16) + 1;
            let row: Vec<Reference> = (0..count).map(|_| self.reference(function, &mut random)).collect();
            rows.push(row).ok()?;
        }
        for table in 0..tables {
            let row = (0..TABLE_LENGTH).map(|_| Reference {
                target: NodeId(self.near(table * FUNCTIONS_PER_TABLE, 64, &mut random)),
                kind: ReferenceKind::Pointer,
            });
            rows.push(row).ok()?;
        }
        ReferenceGraph::new(rows, self.functions as usize)
    }

    fn reference(self, source: u32, random: &mut Random) -> Reference {
        let tables = u64::from(self.functions / FUNCTIONS_PER_TABLE);
        let (target, kind) = match random.below(100) {
            0..70 => (self.near(source, 64, random), ReferenceKind::Call),
            70..85 => (self.near(source, 2000, random), ReferenceKind::Call),
            85..95 => {
                // Few functions are called from everywhere.
                let popular = random.below(u64::from(self.functions) / 100 + 1);
                (random.below(popular + 1) as u32, ReferenceKind::Call)
            }
            _ if tables > 0 => {
                let near = u64::from(self.near(source, 64, random)) / u64::from(FUNCTIONS_PER_TABLE);
                (self.functions + near.min(tables - 1) as u32, ReferenceKind::DataAddress)
            }
            _ => (source, ReferenceKind::CodeAddress),
        };
        Reference { target: NodeId(target), kind }
    }

    /// A function at most `distance` from another one.
    fn near(self, source: u32, distance: u64, random: &mut Random) -> u32 {
        let shifted = (u64::from(source) + random.below(2 * distance)).saturating_sub(distance);
        shifted.min(u64::from(self.functions) - 1) as u32
    }

    fn random(self, stream: Stream, number: u64) -> Random {
        Random::new(u64::from(self.functions), &[stream as u64, number])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a failed unwrap is a failed test
mod tests {
    use super::*;

    #[test]
    fn starts_have_the_promised_size_and_a_common_core() {
        for (functions, traces, events) in [(1000, 10, 250), (3, 2, 5), (100, 3, 100)] {
            let problem = Program { functions, traces, events }.problem().unwrap();
            assert_eq!(problem.traces().event_count() as u32, traces * events.min(functions));
        }
        let problem = Program { functions: 10_000, traces: 20, events: 1000 }.problem().unwrap();
        let mut starts = vec![0; 10_000];
        for function in problem.traces().iter().flat_map(|trace| trace.functions) {
            starts[function.index()] += 1;
        }
        assert!(starts.iter().filter(|&&starts| starts >= 15).count() > 250);
        assert!(starts.iter().filter(|&&starts| starts == 1).count() > 1000);
        let mean = problem.sizes().iter().sum::<u64>() / 10_000;
        assert!((200..400).contains(&mean), "{mean} bytes on average");
    }
}
