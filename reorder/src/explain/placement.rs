//! Why a function is where it is, derived from the scenarios, the references and the pins.

use serde::Serialize;

use super::{Explainer, MAX_NAME_LENGTH};
use layout_algos::problem::NodeId;
use reorder_image::functions::FunctionIndex;
use reorder_image::pins::PinReason;
use reorder_report::visible::visible_start;

/// Why a function is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// The reason that decides.
    pub reason: PlacementReason,
    /// Sentences for people.
    pub because: Vec<String>,
    /// Position among all functions in the new image, counted from 1.
    pub position: u64,
    /// Number of all functions.
    pub of_functions: u64,
}

/// What decides the place of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementReason {
    /// It cannot be moved.
    Pinned,
    /// Recorded runs execute it.
    Needed,
    /// No recorded run executes it, but a function that they execute refers to it.
    Referenced,
    /// There is no reason for another place.
    LeftInOrder,
}

impl Explainer<'_> {
    /// Why it is where it is in the new image; `None` without one.
    pub(super) fn placement(&self, index: FunctionIndex) -> Option<Placed> {
        let places = self.new.as_ref()?;
        let functions = self.knowledge.functions;
        let function = functions.get(index);
        let mut because = Vec::new();
        let own = &self.runs_in[index.0 as usize];
        let pin = self.pin(index);
        let reason = if let Some(pin) = pin {
            because.push(match pin.reason {
                PinReason::NoRoom => {
                    "it is not pinned, but no free place was large enough, so it stays".to_owned()
                }
                _ => "it is pinned, so everything else is placed around it".to_owned(),
            });
            PlacementReason::Pinned
        } else if !own.is_empty() {
            because.push(self.needed_because(index, own));
            PlacementReason::Needed
        } else if let Some(source) = self.needed_referrer(index) {
            because.push(format!(
                "no recorded run executes it, but {}, which refers to it, is executed: a run that was not recorded may need it",
                self.readable(source)
            ));
            PlacementReason::Referenced
        } else {
            because.push(match self.knowledge.references {
                Some(_) => "no recorded run executes it or any function that refers to it".to_owned(),
                None => "no recorded run executes it; what refers to it is unknown for this kind of image"
                    .to_owned(),
            });
            PlacementReason::LeftInOrder
        };
        because.push(self.company(index, own));
        if places.start(index) == function.start && pin.is_none() {
            because.push("it keeps its address".to_owned());
        }
        let position = places.position(index) as u64 + 1;
        Some(Placed { reason, because, position, of_functions: functions.len() as u64 })
    }

    fn needed_because(&self, index: FunctionIndex, own: &[u32]) -> String {
        let all = self.knowledge.scenarios.len();
        let earliest =
            self.runs(index).into_iter().min_by_key(|run| (run.rank * 1000) / run.of_functions.max(1));
        let when = earliest.map_or_else(String::new, |run| {
            format!(
                ", earliest as number {} of {} in {}",
                run.rank,
                run.of_functions,
                visible_start(&run.scenario, MAX_NAME_LENGTH)
            )
        });
        match (own.len(), all) {
            (1, 1) => format!("the recorded run executes it{when}"),
            (2, 2) => format!("both scenarios run it{when}"),
            (runs, all) if runs == all => format!("all {all} scenarios run it{when}"),
            (runs, all) => format!("{runs} of {all} scenarios run it{when}"),
        }
    }

    /// How many functions share its pages, and how many of them run in the same scenarios.
    fn company(&self, index: FunctionIndex, own: &[u32]) -> String {
        let (Some(places), functions) = (self.new.as_ref(), self.knowledge.functions) else {
            return String::new();
        };
        let mates = places.page_mates(index, functions, self.knowledge.model.page_bytes());
        let runs = |one: &&FunctionIndex| !self.runs_in[one.0 as usize].is_empty();
        let alike = mates.iter().filter(|one| self.runs_in[one.0 as usize] == own).count();
        let running = mates.iter().filter(runs).count();
        match (mates.len(), own.is_empty()) {
            (0, _) => "it has its pages to itself".to_owned(),
            (count, true) => {
                format!("of the {count} other functions on its pages {running} run in some scenario")
            }
            (count, false) => format!(
                "of the {count} other functions on its pages {alike} run in exactly the same scenarios, {running} in some"
            ),
        }
    }

    /// The function that refers to this one and runs in the most scenarios.
    fn needed_referrer(&self, index: FunctionIndex) -> Option<FunctionIndex> {
        let graph = self.knowledge.references?;
        let runs = (0..).map(FunctionIndex).zip(&self.runs_in).filter(|(_, runs)| !runs.is_empty());
        let refers = |source: FunctionIndex| {
            (source.0 as usize) < graph.function_count()
                && graph.of(NodeId(source.0)).iter().any(|reference| reference.target == NodeId(index.0))
        };
        runs.filter(|(source, _)| refers(*source))
            .max_by_key(|(source, runs)| (runs.len(), std::cmp::Reverse(*source)))
            .map(|(source, _)| source)
    }
}
