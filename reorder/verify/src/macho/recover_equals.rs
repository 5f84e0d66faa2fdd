//! Pairs functions that have equal code.
//!
//! Functions without a known reference are distinguished by their code, their unwind row, what they refer to and what refers
//! to them: every function gets a colour from its own properties, then from the colours of its neighbours, round by round,
//! in both images alike. Functions with the same final colour correspond. Source: B. Weisfeiler and A. Leman, "The reduction
//! of a graph to canonical form" (1968).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::atoms::{atom_starts, runs_on};
use super::recover::Pairs;
use super::recover_code::{fingerprint, for_each_pair};
use super::tables::function_starts;
use super::unwind::UnwindTable;
use super::view::MachView;
use reorder_base::error::Result;

/// Maximum number of rounds: chains of functions that only refer to each other are short.
const MAX_ROUNDS: usize = 24;
/// Maximum number of bytes compared, in multiples of the size of `__text`.
const MAX_COMPARED: usize = 64;

/// What a piece of code refers to.
enum Target {
    /// An address of the new image.
    Known(u64),
    /// Another function of the same side by its position, and the distance to its start.
    Open(u32, u64),
}

/// The functions of one image that have no counterpart yet.
struct Side<'data> {
    /// First address and one past the last, ascending.
    ranges: Vec<(u64, u64)>,
    /// What each refers to, in its order.
    targets: Vec<Vec<Target>>,
    /// The padding after the code of each.
    padding: Vec<&'data [u8]>,
    colours: Vec<u64>,
}

fn hash_of(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<'data> Side<'data> {
    /// `known` gives the counterpart of an address in `__text` of `image` that has one.
    fn new(
        image: &MachView<'data>,
        ranges: Vec<(u64, u64)>,
        known: impl Fn(u64) -> Option<u64>,
    ) -> Result<Self> {
        let (rows, text) = (UnwindTable::read(image)?, image.text());
        let starts: BTreeSet<u64> = function_starts(image)?.into_iter().collect();
        let mut side = Self { targets: Vec::new(), padding: Vec::new(), colours: Vec::new(), ranges };
        for &(start, end) in &side.ranges {
            let row = rows.at(start);
            let says = (row.encoding, row.personality, row.exceptions);
            let (code, body) = fingerprint(image, start, end);
            side.colours.push(hash_of((code, says, starts.contains(&start))));
            let range = (start - text.address) as usize..(end - text.address) as usize;
            let code = (start, text.bytes.get(range).unwrap_or_default());
            side.padding.push(code.1.get(body..).unwrap_or_default());
            let mut targets = Vec::new();
            let mut data = Vec::new();
            for_each_pair(image, code, code, |target, _| match text.range().contains(&target) {
                true => targets.push(side.target(target, &known)),
                // Halves of addresses may be written at other places.
                false => data.push(target),
            });
            if runs_on(image, code.1, start) {
                targets.push(side.target(end, &known));
            }
            data.sort_unstable();
            targets.extend(data.into_iter().map(Target::Known));
            side.targets.push(targets);
        }
        Ok(side)
    }

    fn target(&self, address: u64, known: &impl Fn(u64) -> Option<u64>) -> Target {
        let at = self.ranges.partition_point(|range| range.0 <= address).checked_sub(1);
        match at.filter(|&at| address < self.ranges[at].1) {
            Some(at) => Target::Open(at as u32, address - self.ranges[at].0),
            None => Target::Known(known(address).unwrap_or(0)),
        }
    }

    /// One round: the colours of what each function refers to and of what refers to it become part of its own.
    fn refine(&mut self) {
        let mut from = vec![0u64; self.colours.len()];
        let mut next = Vec::with_capacity(self.colours.len());
        for (targets, &colour) in self.targets.iter().zip(&self.colours) {
            let mut hasher = DefaultHasher::new();
            for target in targets {
                match *target {
                    Target::Known(address) => (0u8, address, 0).hash(&mut hasher),
                    Target::Open(at, distance) => {
                        (1u8, self.colours[at as usize], distance).hash(&mut hasher);
                        // In any order.
                        let from = &mut from[at as usize];
                        *from = from.wrapping_add(hash_of((colour, distance)));
                    }
                }
            }
            next.push((colour, hasher.finish()));
        }
        self.colours = next.into_iter().zip(from).map(hash_of).collect();
    }

    fn classes(&self) -> usize {
        self.colours.iter().collect::<BTreeSet<_>>().len()
    }

    /// Positions by colour, ascending.
    fn by_colour(&self, colours: &[u64]) -> BTreeMap<u64, Vec<usize>> {
        let mut found: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (at, colour) in colours.iter().enumerate() {
            found.entry(*colour).or_default().push(at);
        }
        found
    }

    /// Whether the padding of `other` equals that of the function at `at`, as far as both have some.
    fn has_padding(&self, at: usize, other: &[u8]) -> bool {
        self.padding[at].iter().zip(other).all(|(own, other)| own == other)
    }
}

/// Pairs the remaining functions: first those that are the only ones of their colour, then those found at their old place,
/// then, by address, those that contradict nothing. Functions without a common colour may still have the same code.
///
/// # Errors
/// Tables that cannot be read.
pub(super) fn learn_from_equals(pairs: &mut Pairs<'_, '_>) -> Result<()> {
    let missing: Vec<usize> = pairs.missing().collect();
    if missing.is_empty() {
        return Ok(());
    }
    let ranges = missing.iter().map(|&atom| (pairs.starts[atom], pairs.end_of(atom))).collect();
    let mut old = Side::new(pairs.old, ranges, |address| pairs.counterpart(address))?;
    let (new_starts, end) = (atom_starts(pairs.new)?, pairs.new.text().range().end);
    let taken: BTreeSet<u64> = pairs.places.iter().flatten().copied().collect();
    let ends = new_starts.iter().skip(1).chain([&end]);
    let ranges = new_starts.iter().copied().zip(ends.copied());
    let ranges: Vec<(u64, u64)> = ranges.filter(|range| !taken.contains(&range.0)).collect();
    pairs.free = ranges.iter().map(|range| range.0).collect();
    let mut new = Side::new(pairs.new, ranges, Some)?;
    let own_colours = (old.colours.clone(), new.colours.clone());
    let mut classes = 0;
    for _ in 0..MAX_ROUNDS {
        old.refine();
        new.refine();
        if old.classes() == std::mem::replace(&mut classes, old.classes()) {
            break;
        }
    }
    // Large functions first: they distinguish the small ones that they refer to.
    let mut order: Vec<usize> = (0..missing.len()).collect();
    order.sort_by_key(|&at| Reverse(old.ranges[at].1 - old.ranges[at].0));
    let mut budget = pairs.old.text().bytes.len().saturating_mul(MAX_COMPARED);
    let passes = [(&old.colours, &new.colours), (&own_colours.0, &own_colours.1)];
    for (old_colours, new_colours) in passes {
        let (counts, places) = (old.by_colour(old_colours), new.by_colour(new_colours));
        for choice in [Choice::Only, Choice::Same, Choice::Any] {
            for &at in &order {
                let (atom, start) = (missing[at], old.ranges[at].0);
                if pairs.places[atom].is_some() {
                    continue;
                }
                let candidates = places.get(&old_colours[at]).map_or(&[][..], Vec::as_slice);
                let is_only = counts.get(&old_colours[at]).map_or(0, Vec::len) == 1 && candidates.len() == 1;
                let size = (old.ranges[at].1 - start) as usize;
                let mut fits = |candidate: usize| {
                    let place = new.ranges[candidate].0;
                    let is_wanted = match choice {
                        Choice::Only => is_only,
                        Choice::Same => place == start,
                        Choice::Any => true,
                    };
                    let may_fit = is_wanted && pairs.free.contains(&place);
                    if !may_fit || !new.has_padding(candidate, old.padding[at]) || budget < size {
                        return false;
                    }
                    budget -= size;
                    pairs.is_consistent(atom, place)
                };
                let found = candidates.iter().copied().find(|&candidate| fits(candidate));
                if let Some(place) = found.map(|candidate| new.ranges[candidate].0) {
                    pairs.learn(start, place);
                    pairs.learn_from_code();
                }
            }
        }
    }
    Ok(())
}

/// Which places are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// The only one, of something that is the only one.
    Only,
    /// The old one.
    Same,
    /// The first that contradicts nothing.
    Any,
}
