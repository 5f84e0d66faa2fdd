//! The order by pages, out of which single functions are pulled to where they compress.
//!
//! Functions are placed in the order by pages. Before each one, later ones that are similar to one in reach are pulled in, the most
//! similar first, as long as it is more similar than the next function is. A new run that needs a pulled function pays about
//! a page for it, whatever its size; so a pull must bring a least number of common hashes, and that number is the exchange rate
//! between pages and bytes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::content::CommonContent;
use crate::control::Control;
use crate::ids::FunctionId;
use crate::problem::LayoutProblem;

/// How far back the walk looks at most. Compressors that reach farther still gain most by what is near: with 32 KiB, zstd and xz made
/// smaller files than with 128 KiB or more.
const MAX_REACH: u64 = 32 << 10;

/// Steps of the walk between two looks at whether it is cancelled.
const STEPS_PER_LOOK: usize = 1024;

/// What a placed function has in common with a later one. The largest share is first, then what is in reach longest, then the first
/// in the order by pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    /// Of the later one's content.
    share: u64,
    /// The last end of a function from where it is in reach.
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
    /// By place: the shares that it was offered and how long each is in reach, without those that a later one exceeds.
    own: Vec<VecDeque<(u64, u64)>>,
    offers: BinaryHeap<Offer>,
    end: u64,
}

impl<'content> Walk<'content> {
    /// Of `functions`, after those of `front`, where a pull brings at least `min_shared` hashes.
    pub(super) fn new(
        problem: &'content LayoutProblem,
        content: &'content CommonContent,
        front: &[FunctionId],
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
            own: vec![VecDeque::new(); functions.len()],
            offers: BinaryHeap::new(),
            end: 0,
        };
        // What is out of reach offers nothing.
        let mut near = 0;
        let first = front.iter().rposition(|&function| {
            near += problem.size(function);
            near > MAX_REACH
        });
        for &function in &front[first.unwrap_or(0)..] {
            walk.place(function);
        }
        walk
    }

    /// All functions in their new order.
    pub(super) fn run(mut self, control: &Control<'_>) -> Vec<FunctionId> {
        let mut order = Vec::with_capacity(self.functions.len());
        for (place, &next) in self.functions.iter().enumerate() {
            while self.places[next.index()].is_some() {
                let is_cancelled = order.len() % STEPS_PER_LOOK == 0 && control.is_cancelled();
                let best = if is_cancelled { None } else { self.best() };
                let own = self.own_share(place);
                let pulled = best.filter(|offer| offer.share > own);
                let chosen = pulled.map_or(next, |offer| self.functions[offer.place.0 as usize]);
                self.place(chosen);
                order.push(chosen);
            }
        }
        order
    }

    /// The largest share of the function at `place` that is in reach.
    fn own_share(&mut self, place: usize) -> u64 {
        let own = &mut self.own[place];
        while own.front().is_some_and(|&(_, until)| until < self.end) {
            own.pop_front();
        }
        own.front().map_or(0, |&(share, _)| share)
    }

    /// The best offer in reach.
    fn best(&mut self) -> Option<Offer> {
        while let Some(&offer) = self.offers.peek() {
            let function = self.functions[offer.place.0 as usize];
            if offer.until >= self.end && self.places[function.index()].is_some() {
                return Some(offer);
            }
            self.offers.pop();
        }
        None
    }

    fn place(&mut self, function: FunctionId) {
        self.places[function.index()] = None;
        self.end = self.end.saturating_add(self.problem.size(function));
        let until = self.end.saturating_add(self.reach);
        for similar in self.content.similar.row(function.index()) {
            let Some(place) = self.places[similar.function.index()] else { continue };
            let share = self.content.share(similar.function, similar.shared);
            let own = &mut self.own[place as usize];
            while own.back().is_some_and(|&(before, _)| before <= share) {
                own.pop_back();
            }
            own.push_back((share, until));
            if similar.shared >= self.min_shared {
                self.offers.push(Offer { share, until, place: Reverse(place) });
            }
        }
    }
}
