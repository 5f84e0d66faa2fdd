//! The functions beside a function, and on its pages.

use serde::Serialize;

use reorder_base::address::Address;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// A function near another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Neighbour {
    /// Demangled.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Number of scenarios in which it runs.
    pub scenarios: u64,
}

/// Number of neighbours on each side.
const REACH: usize = 3;

/// Functions in the order of their addresses in one image.
#[derive(Debug)]
pub(super) struct Places {
    /// By function.
    starts: Vec<Address>,
    /// Functions by address.
    order: Vec<FunctionIndex>,
    /// By function, its position in `order`.
    positions: Vec<u32>,
    /// No function is larger.
    largest: u64,
}

impl Places {
    pub(super) fn new(functions: &FunctionTable<'_>, starts: &[Address]) -> Self {
        let mut order: Vec<FunctionIndex> = functions.iter().map(|(index, _)| index).collect();
        order.sort_by_key(|index| (starts[index.0 as usize], *index));
        let mut positions = vec![0; order.len()];
        for (position, index) in (0..).zip(&order) {
            positions[index.0 as usize] = position;
        }
        let largest = functions.iter().map(|(_, function)| function.size()).max().unwrap_or(0);
        Self { starts: starts.to_vec(), order, positions, largest }
    }

    pub(super) fn start(&self, index: FunctionIndex) -> Address {
        self.starts[index.0 as usize]
    }

    /// Its position among all functions.
    pub(super) fn position(&self, index: FunctionIndex) -> usize {
        self.positions[index.0 as usize] as usize
    }

    /// The nearest functions before it, the nearest last.
    pub(super) fn before(&self, index: FunctionIndex) -> Vec<FunctionIndex> {
        let position = self.position(index);
        self.order[position.saturating_sub(REACH)..position].to_vec()
    }

    /// The nearest functions after it, the nearest first.
    pub(super) fn after(&self, index: FunctionIndex) -> Vec<FunctionIndex> {
        self.order.iter().skip(self.position(index) + 1).take(REACH).copied().collect()
    }

    /// First addresses of the pages that the function lies on.
    pub(super) fn pages(
        &self,
        index: FunctionIndex,
        functions: &FunctionTable<'_>,
        page_bytes: u64,
    ) -> Vec<Address> {
        let (first, last) = self.first_and_last_page(index, functions, page_bytes);
        (first..=last).map(|page| Address(page.saturating_mul(page_bytes))).collect()
    }

    /// The other functions that lie on one of its pages.
    pub(super) fn page_mates(
        &self,
        index: FunctionIndex,
        functions: &FunctionTable<'_>,
        page_bytes: u64,
    ) -> Vec<FunctionIndex> {
        let (first, last) = self.first_and_last_page(index, functions, page_bytes);
        let from = first.saturating_mul(page_bytes);
        let to = last.saturating_add(1).saturating_mul(page_bytes);
        // Functions are sorted by first address; one that starts earlier than this by more than the largest size ends before
        // it.
        let near = self.order.partition_point(|one| self.start(*one).0 < from.saturating_sub(self.largest));
        let reaches = |one: &&FunctionIndex| {
            self.start(**one).0.saturating_add(functions.get(**one).size()) > from && **one != index
        };
        let starts_before = |one: &&FunctionIndex| self.start(**one).0 < to;
        self.order[near..].iter().take_while(starts_before).filter(reaches).copied().collect()
    }

    fn first_and_last_page(
        &self,
        index: FunctionIndex,
        functions: &FunctionTable<'_>,
        page_bytes: u64,
    ) -> (u64, u64) {
        let start = self.start(index).0;
        let last = start.saturating_add(functions.get(index).size().saturating_sub(1));
        (start / page_bytes, last / page_bytes)
    }
}
