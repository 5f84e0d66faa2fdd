//! The order by pages, out of which single functions are pulled to where they compress.
//!
//! Functions are placed in the order by pages. Before each one, later ones that are similar to one in reach are pulled in, the most
//! similar first, until none is more similar than the next function in the order by pages. A new run that needs a pulled function pays about
//! a page for it, whatever its size; so a pull must bring a least number of common hashes, and that number is the exchange rate
//! between pages and bytes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::content::CommonContent;
use crate::control::Control;
use crate::ids::FunctionId;
use crate::problem::LayoutProblem;

/// How far back the walk looks at most. Compressors that reach farther still gain most by what is near: with 32 KiB, zstd and xz made
/// the text of ripgrep smaller than with 128 KiB or more.
const MAX_REACH: u64 = 32 << 10;

/// Steps of the walk between two looks at whether it is cancelled.
const STEPS_PER_LOOK: usize = 1024;

/// Fewer offers than this are not looked through for those that are out of date.
const MIN_OFFERS: usize = 100_000;

/// What a placed function has in common with a later one. The largest share is first, then what is in reach longest, then the first
/// in the order by pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    /// Of the later one's content.
    share: u64,
    /// It is in reach while at most this many bytes are placed.
    until: u64,
    place: Reverse<u32>,
}

pub(super) struct Walk<'content> {
    problem: &'content LayoutProblem,
    content: &'content CommonContent,
    reach: u64,
    min_shared: u32,
    /// The functions in the order by pages.
    functions: &'content [FunctionId],
    /// By function: its place in that order, as long as it is not placed.
    places: Vec<Option<u32>>,
    /// By place: shares that it was offered, falling, and until when each is in reach. A later one removes those that are not larger.
    offered: Vec<VecDeque<(u64, u64)>>,
    /// The offers that are large enough for a pull, and some that are out of date.
    offers: BinaryHeap<Offer>,
    /// Offers above which those that are out of date are removed.
    max_offers: usize,
    /// Bytes placed so far.
    end: u64,
}

impl<'content> Walk<'content> {
    /// Of `functions`, after those of `before`, where a pull brings at least `min_shared` hashes.
    pub(super) fn new(
        problem: &'content LayoutProblem,
        content: &'content CommonContent,
        before: &[FunctionId],
        functions: &'content [FunctionId],
        reach: u64,
        min_shared: u32,
    ) -> Self {
        let mut places = vec![None; problem.function_count()];
        for (place, function) in functions.iter().enumerate() {
            places[function.index()] = Some(place as u32);
        }
        let mut walk = Self {
            problem,
            content,
            reach: reach.min(MAX_REACH),
            min_shared,
            functions,
            places,
            offered: vec![VecDeque::new(); functions.len()],
            offers: BinaryHeap::new(),
            max_offers: MIN_OFFERS,
            end: 0,
        };
        // What is out of reach offers nothing.
        let mut near = 0;
        let first = before.iter().rposition(|&function| {
            near += problem.size(function);
            near > MAX_REACH
        });
        for &function in &before[first.unwrap_or(0)..] {
            walk.place(function);
        }
        walk
    }

    /// All functions in their new order.
    pub(super) fn run(mut self, control: &Control<'_>) -> Vec<FunctionId> {
        let mut order = Vec::with_capacity(self.functions.len());
        for (place, &next) in self.functions.iter().enumerate() {
            while self.is_open(next) {
                if order.len() % STEPS_PER_LOOK == 0 && control.is_cancelled() {
                    let rest = self.functions[place..].iter().copied();
                    order.extend(rest.filter(|&function| self.is_open(function)));
                    return order;
                }
                let share = self.share_in_reach(place);
                let pulled = self.best().filter(|offer| offer.share > share);
                let chosen = pulled.map_or(next, |offer| self.functions[offer.place.0 as usize]);
                self.place(chosen);
                order.push(chosen);
            }
        }
        order
    }

    /// Whether a function is still to be placed.
    fn is_open(&self, function: FunctionId) -> bool {
        self.places[function.index()].is_some()
    }

    /// The largest share of the function at `place` that is in reach.
    fn share_in_reach(&mut self, place: usize) -> u64 {
        let offered = &mut self.offered[place];
        while offered.front().is_some_and(|&(_, until)| until < self.end) {
            offered.pop_front();
        }
        offered.front().map_or(0, |&(share, _)| share)
    }

    /// The best offer in reach.
    fn best(&mut self) -> Option<Offer> {
        while let Some(&offer) = self.offers.peek() {
            if self.is_open(self.functions[offer.place.0 as usize]) && offer.until >= self.end {
                return Some(offer);
            }
            self.offers.pop();
        }
        None
    }

    fn place(&mut self, function: FunctionId) {
        if let Some(place) = self.places[function.index()].take() {
            self.offered[place as usize] = VecDeque::new();
        }
        self.end = self.end.saturating_add(self.problem.size(function));
        let until = self.end.saturating_add(self.reach);
        for similar in self.content.similar.row(function.index()) {
            let Some(place) = self.places[similar.function.index()] else { continue };
            let share = self.content.share(similar.function, similar.shared);
            let offered = &mut self.offered[place as usize];
            while offered.back().is_some_and(|&(before, _)| before <= share) {
                offered.pop_back();
            }
            offered.push_back((share, until));
            if similar.shared >= self.min_shared {
                self.offers.push(Offer { share, until, place: Reverse(place) });
            }
        }
        if self.offers.len() > self.max_offers {
            let (places, functions, end) = (&self.places, self.functions, self.end);
            let is_open = |offer: &Offer| places[functions[offer.place.0 as usize].index()].is_some();
            self.offers.retain(|offer| offer.until >= end && is_open(offer));
            // Twice as many: each look is paid for by as many new offers.
            self.max_offers = (2 * self.offers.len()).max(MIN_OFFERS);
        }
    }
}
