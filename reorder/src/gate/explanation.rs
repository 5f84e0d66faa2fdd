//! Which functions and pages a difference in faults comes from.
//!
//! In: what a scenario ran then and now. Out: an [`Explanation`]. A fault belongs to the function that runs when it happens,
//! so the changes of all functions add up to the change of the scenario. Functions are the same if their names are;
//! namesakes are paired first by size, then by the order of their addresses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use schemars::JsonSchema;
use serde::Serialize;

use super::startup::{Startup, StartupFunction, StartupScenario};
use reorder_base::address::Address;
use reorder_layout::memory::MemoryModel;

/// Why the faults of one scenario differ from the baseline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Explanation {
    /// The scenario.
    pub scenario: String,
    /// The memory model.
    pub model: String,
    /// Faults of its first recording, in the baseline.
    pub old_faults: u64,
    /// In this image.
    pub new_faults: u64,
    /// Functions that run now and did not run before.
    pub added: u64,
    /// Functions that ran before and no longer run.
    pub removed: u64,
    /// Functions whose size changed.
    pub resized: u64,
    /// New functions first, then those that are gone, resized and moved; of each kind those that change most faults first.
    /// Functions that are as they were and cause as many faults as before are not listed.
    pub functions: Vec<FunctionChange>,
}

/// The change of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FunctionChange {
    /// Readable.
    pub name: String,
    /// What changed.
    pub change: ChangeKind,
    /// Where it is; in the baseline if it is gone.
    #[schemars(with = "String")]
    pub address: Address,
    /// Bytes in the baseline; none for new functions.
    pub old_bytes: Option<u64>,
    /// Bytes in this image; none for those that are gone.
    pub new_bytes: Option<u64>,
    /// Faults that it causes now minus those that it caused before.
    pub faults: i64,
    /// First addresses of the pages that it lies on and no earlier function touched; in the baseline if it is gone.
    #[schemars(with = "Vec<String>")]
    pub pages: Vec<Address>,
}

/// What changed about a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It runs now and did not run before.
    Added,
    /// It ran before and no longer runs.
    Removed,
    /// Its size changed.
    Resized,
    /// It has the same size and other neighbours.
    Moved,
}

/// Explains `scenario`; `None` when either side does not have it or nothing changed.
#[must_use]
pub(super) fn explain(
    then: &Startup,
    now: &Startup,
    scenario: &str,
    model: &MemoryModel,
) -> Option<Explanation> {
    let old = Side::new(then, then.scenario(scenario)?, model);
    let new = Side::new(now, now.scenario(scenario)?, model);
    let pairs = pairs(&old, &new);
    let mut functions = Vec::new();
    for (place, before) in pairs.iter().enumerate() {
        let function = new.function(place);
        let before = before.map(|before| (old.function(before), old.faults[before]));
        let faults = new.faults[place] as i64 - before.map_or(0, |(_, faults)| faults as i64);
        let change = match before {
            None => ChangeKind::Added,
            Some((before, _)) if before.size != function.size => ChangeKind::Resized,
            Some(_) if faults != 0 => ChangeKind::Moved,
            Some(_) => continue,
        };
        functions.push(FunctionChange {
            name: function.name.clone(),
            change,
            address: Address(function.address),
            old_bytes: before.map(|(before, _)| before.size),
            new_bytes: Some(function.size),
            faults,
            pages: new.opened.get(&place).cloned().unwrap_or_default(),
        });
    }
    let kept: BTreeSet<usize> = pairs.into_iter().flatten().collect();
    for place in (0..old.order.len()).filter(|place| !kept.contains(place)) {
        let function = old.function(place);
        functions.push(FunctionChange {
            name: function.name.clone(),
            change: ChangeKind::Removed,
            address: Address(function.address),
            old_bytes: Some(function.size),
            new_bytes: None,
            faults: -(old.faults[place] as i64),
            pages: old.opened.get(&place).cloned().unwrap_or_default(),
        });
    }
    if functions.is_empty() {
        return None;
    }
    functions.sort_by_key(|change| {
        let bytes = change.new_bytes.or(change.old_bytes);
        (change.change, -change.faults.abs(), std::cmp::Reverse(bytes), change.address)
    });
    let count = |kind| functions.iter().filter(|change| change.change == kind).count() as u64;
    Some(Explanation {
        scenario: scenario.to_owned(),
        model: model.name.clone(),
        old_faults: old.faults.iter().sum(),
        new_faults: new.faults.iter().sum(),
        added: count(ChangeKind::Added),
        removed: count(ChangeKind::Removed),
        resized: count(ChangeKind::Resized),
        functions,
    })
}

/// By place in the new order, the place of the same function in the old one.
fn pairs(old: &Side<'_>, new: &Side<'_>) -> Vec<Option<usize>> {
    let mut pairs = vec![None; new.order.len()];
    // Queues, because the number of namesakes in a baseline is unbounded.
    let mut equals: BTreeMap<(&str, u64), VecDeque<usize>> = BTreeMap::new();
    for place in old.by_address() {
        let function = old.function(place);
        equals.entry((&function.name, function.size)).or_default().push_back(place);
    }
    let mut changed = Vec::new();
    for place in new.by_address() {
        let function = new.function(place);
        let equal = equals.get_mut(&(function.name.as_str(), function.size)).and_then(VecDeque::pop_front);
        match equal {
            Some(equal) => pairs[place] = Some(equal),
            None => changed.push(place),
        }
    }
    let mut left: Vec<usize> = equals.into_values().flatten().collect();
    left.sort_unstable_by_key(|&place| (old.function(place).address, place));
    let mut namesakes: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
    for place in left {
        namesakes.entry(&old.function(place).name).or_default().push_back(place);
    }
    for place in changed {
        let name = new.function(place).name.as_str();
        pairs[place] = namesakes.get_mut(name).and_then(VecDeque::pop_front);
    }
    pairs
}

/// The scenario in one build.
struct Side<'startup> {
    startup: &'startup Startup,
    order: &'startup [u32],
    /// By place in the order.
    faults: Vec<u64>,
    /// By place in the order: pages that no earlier function touched.
    opened: BTreeMap<usize, Vec<Address>>,
}

impl<'startup> Side<'startup> {
    fn new(startup: &'startup Startup, scenario: &'startup StartupScenario, model: &MemoryModel) -> Self {
        let order = scenario.order.as_slice();
        let functions = || order.iter().map(|&place| &startup.functions[place as usize]).enumerate();
        Self {
            startup,
            order,
            faults: startup.faults(scenario, model),
            opened: opened_pages(functions(), model.page_bytes()),
        }
    }

    /// Places in the order, the lowest address first.
    fn by_address(&self) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.order.len()).collect();
        places.sort_by_key(|&place| self.function(place).address);
        places
    }

    fn function(&self, place: usize) -> &'startup StartupFunction {
        &self.startup.functions[self.order[place] as usize]
    }
}

/// Pages of one function that are listed.
const SHOWN_PAGES: usize = 16;

fn opened_pages<'startup>(
    functions: impl Iterator<Item = (usize, &'startup StartupFunction)>,
    page_bytes: u64,
) -> BTreeMap<usize, Vec<Address>> {
    let mut touched = BTreeSet::new();
    let mut opened = BTreeMap::new();
    for (place, function) in functions {
        let mut fresh = Vec::new();
        for page in function.span().pages(page_bytes).filter(|page| touched.insert(page.0)) {
            if fresh.len() < SHOWN_PAGES {
                fresh.push(Address(page.0.saturating_mul(page_bytes)));
            }
        }
        if !fresh.is_empty() {
            opened.insert(place, fresh);
        }
    }
    opened
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use proptest::prelude::*;

    use super::*;
    use reorder_layout::memory::default_for_elf;

    /// Functions called by number, as `(number, gap before it, size)`, all of which run, in the order of `ranks`; some are
    /// namesakes.
    fn startup(functions: &[(u8, u16, u16)], ranks: &[u16]) -> Startup {
        let mut cursor = 0x1000;
        let mut all = Vec::new();
        for &(number, gap, size) in functions {
            let (address, size) = (cursor + u64::from(gap), u64::from(size) + 1);
            all.push(StartupFunction { name: format!("function {number}"), address, size });
            cursor = address + size;
        }
        let mut order: Vec<u32> = (0..all.len() as u32).collect();
        order.sort_by_key(|&place| ranks.get(place as usize).copied().unwrap_or(0));
        let scenarios = vec![StartupScenario { name: "start".to_owned(), order }];
        Startup { functions: all, scenarios }
    }

    fn functions() -> impl Strategy<Value = Vec<(u8, u16, u16)>> {
        prop::collection::vec((0..24_u8, 0..9000_u16, 0..6000_u16), 1..24)
    }

    proptest! {
        #[test]
        fn changes_of_functions_add_up_to_that_of_the_scenario(
            then in functions(), now in functions(), ranks in prop::collection::vec(any::<u16>(), 24),
        ) {
            let (then, now) = (startup(&then, &ranks), startup(&now, &ranks));
            for model in default_for_elf() {
                let total = |startup: &Startup| startup.faults(&startup.scenarios[0], &model).iter().sum::<u64>();
                match explain(&then, &now, "start", &model) {
                    Some(told) => {
                        prop_assert_eq!((told.old_faults, told.new_faults), (total(&then), total(&now)));
                        let sum: i64 = told.functions.iter().map(|change| change.faults).sum();
                        prop_assert_eq!(sum, told.new_faults as i64 - told.old_faults as i64);
                        let pages: usize = told.functions.iter().filter(|one| one.new_bytes.is_some()).map(|one| one.pages.len()).sum();
                        prop_assert!(pages as u64 <= now.functions.iter().map(|one| one.size / model.page_bytes() + 2).sum::<u64>());
                    }
                    None => prop_assert_eq!(total(&then), total(&now)),
                }
            }
        }
    }

    #[test]
    fn namesakes_of_one_size_are_the_same() {
        let then = startup(&[(1, 0, 19), (1, 0, 29), (1, 0, 39)], &[]);
        let now = startup(&[(1, 0, 19), (1, 0, 24), (1, 0, 29), (1, 0, 39)], &[]);
        let told = explain(&then, &now, "start", &default_for_elf()[0]).unwrap();
        let changes: Vec<_> = told.functions.iter().map(|one| (one.change, one.new_bytes)).collect();
        assert_eq!(changes, [(ChangeKind::Added, Some(25))]);
    }

    #[test]
    fn a_new_function_comes_first_and_names_its_page() {
        let then = startup(&[(1, 0, 99), (2, 0, 99)], &[]);
        let now = startup(&[(1, 0, 99), (2, 0, 119), (7, 8000, 49)], &[]);
        let told = explain(&then, &now, "start", &default_for_elf()[0]).unwrap();
        assert_eq!((told.added, told.removed, told.resized), (1, 0, 1));
        let first = &told.functions[0];
        assert_eq!((first.name.as_str(), first.change, first.faults), ("function 7", ChangeKind::Added, 1));
        assert_eq!(first.pages, [Address(0x3000)]);
        assert_eq!(told.functions[1].change, ChangeKind::Resized);
        assert_eq!(explain(&then, &then, "start", &default_for_elf()[0]), None);
        assert_eq!(explain(&then, &now, "other", &default_for_elf()[0]), None);
    }
}
