//! Fragments: runs of consecutive instructions that are copied together.
//!
//! In: walked functions and, where they are known, the ranges of bytes that ran. Out: fragments, each within one function.
//! Instructions between two runs are copied along where that takes fewer bytes than cutting there.

use std::collections::BTreeSet;
use std::ops::Range;

use layout_algos::random::Random;

use super::bodies::Body;
use super::step::{Form, Step, Use};
use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// Consecutive instructions of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// Position of the body.
    pub body: usize,
    /// Positions of the instructions in the body's walk.
    pub steps: Range<usize>,
}

/// Bytes of a jump that reaches the whole image.
pub(super) fn jump_size(processor: Processor) -> u32 {
    if processor == Processor::Aarch64 { 4 } else { 5 }
}

impl Fragment {
    /// The instructions, each with its distance from the start of the body.
    pub(super) fn of<'run>(&self, bodies: &'run [Body]) -> &'run [(u32, Step)] {
        &bodies[self.body].walk.steps[self.steps.clone()]
    }

    /// Where the originals of its instructions are.
    pub(super) fn original(&self, bodies: &[Body]) -> Range<Address> {
        let start = bodies[self.body].range.start;
        let steps = self.of(bodies);
        let first = steps.first().map_or(0, |(offset, _)| u64::from(*offset));
        let end = steps.last().map_or(first, |step| u64::from(end_of(step)));
        start.plus(first)..start.plus(end)
    }

    /// Bytes of the copy: the instructions, their guards, a jump at the end, and the long forms of branches that leave it. An
    /// estimate from above, unless guards lengthen branches inside.
    pub(super) fn size(&self, bodies: &[Body], processor: Processor) -> u32 {
        let (range, steps) = (self.original(bodies), self.of(bodies));
        let guards = steps.iter().filter_map(|(_, step)| Some(step.guard?.size()));
        let grown = steps.iter().filter_map(|(_, step)| {
            let reference = step.reference.filter(|reference| !range.contains(&reference.target))?;
            match reference.form {
                Form::Short => Some(growth(step)),
                Form::Near(_) => Some(jump_size(processor)),
                Form::Far(_) => None,
            }
        });
        let continues = steps.last().is_some_and(|(_, step)| step.continues);
        let jump = if continues { jump_size(processor) } else { 0 };
        range.end.distance_from(range.start) as u32 + guards.chain(grown).sum::<u32>() + jump
    }
}

/// Bytes by which the long form of a short jump is longer; only conditional ones may continue.
pub(super) fn growth(step: &Step) -> u32 {
    if step.continues { 4 } else { 3 }
}

/// Where an instruction ends, from the start of its body.
pub(super) fn end_of((offset, step): &(u32, Step)) -> u32 {
    offset + u32::from(step.length)
}

/// All instructions of `bodies`, in their order.
pub(super) fn whole(bodies: &[Body]) -> Vec<Fragment> {
    let whole = |(index, body): (usize, &Body)| {
        let runs = runs(body, |_| true).into_iter();
        runs.map(move |steps| Fragment { body: index, steps }).collect::<Vec<_>>()
    };
    bodies.iter().enumerate().flat_map(whole).collect()
}

/// The instructions of `bodies` that begin in one of `ran`, which ascend and do not overlap, and what is cheaper to copy along.
pub(super) fn executed(bodies: &[Body], ran: &[Range<Address>], processor: Processor) -> Vec<Fragment> {
    let has_run = |address: Address| {
        let after = ran.partition_point(|range| range.start <= address);
        ran[..after].last().is_some_and(|range| address < range.end)
    };
    let of_body = |(index, body): (usize, &Body)| {
        let start = body.range.start;
        let runs = runs(body, |offset| has_run(start.plus(u64::from(offset))));
        let joined = joined(body, runs, jump_size(processor)).into_iter();
        joined.map(move |steps| Fragment { body: index, steps }).collect::<Vec<_>>()
    };
    bodies.iter().enumerate().flat_map(of_body).collect()
}

/// About half of the basic blocks of `bodies`.
pub(super) fn at_random(bodies: &[Body], seed: u64) -> Vec<Fragment> {
    let mut random = Random::new(seed, &[]);
    let mut fragments = Vec::new();
    for (index, body) in bodies.iter().enumerate() {
        let leaders = leaders(body);
        let mut is_wanted = false;
        let mut wanted = Vec::with_capacity(body.walk.steps.len());
        for (offset, _) in &body.walk.steps {
            if leaders.contains(offset) {
                is_wanted = random.below(2) == 0;
            }
            wanted.push(is_wanted);
        }
        let steps = &body.walk.steps;
        let is_wanted = |offset: u32| {
            let position = steps.binary_search_by_key(&offset, |(offset, _)| *offset);
            position.is_ok_and(|position| wanted[position])
        };
        fragments.extend(runs(body, is_wanted).into_iter().map(|steps| Fragment { body: index, steps }));
    }
    fragments
}

/// Where basic blocks of a body begin: after branches, at their targets, and at functions.
fn leaders(body: &Body) -> BTreeSet<u32> {
    let mut leaders = BTreeSet::new();
    for entry in &body.walk.steps {
        let (offset, step) = entry;
        let is_start = body.function_starts.contains(&body.range.start.plus(u64::from(*offset)));
        leaders.extend(is_start.then_some(*offset));
        let jump = step.reference.filter(|reference| reference.usage == Use::Jump);
        if let Some(jump) = jump
            && body.range.contains(&jump.target)
        {
            leaders.insert(jump.target.distance_from(body.range.start) as u32);
        }
        if jump.is_some() || !step.continues {
            leaders.insert(end_of(entry));
        }
    }
    leaders
}

/// Maximal runs of consecutive instructions, of one function each, whose offsets are `wanted`.
fn runs(body: &Body, wanted: impl Fn(u32) -> bool) -> Vec<Range<usize>> {
    let steps = &body.walk.steps;
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (position, _) in steps.iter().enumerate().filter(|(_, (offset, _))| wanted(*offset)) {
        match runs.last_mut() {
            Some(last) if last.end == position && is_joined(body, position) => last.end = position + 1,
            _ => runs.push(position..position + 1),
        }
    }
    runs
}

/// Whether the instruction at `position` follows the one before it directly, in the same function.
fn is_joined(body: &Body, position: usize) -> bool {
    let steps = &body.walk.steps;
    let (offset, _) = steps[position];
    let is_start = body.function_starts.binary_search(&body.range.start.plus(u64::from(offset))).is_ok();
    end_of(&steps[position - 1]) == offset && !is_start
}

/// Joins neighbours of `runs` where the instructions between them are no more bytes than a cut: a jump where control may
/// run into them, and the longer forms of the branches across.
fn joined(body: &Body, runs: Vec<Range<usize>>, jump: u32) -> Vec<Range<usize>> {
    let steps = &body.walk.steps;
    let lengthened = lengthened(body, &runs);
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(runs.len());
    for run in runs {
        let Some(last) = joined.last_mut() else {
            joined.push(run);
            continue;
        };
        let between = last.end..run.start;
        let is_contiguous = (between.start..=between.end).all(|position| is_joined(body, position));
        let bytes = steps[run.start].0 - end_of(&steps[last.end - 1]);
        let cut = if steps[last.end - 1].1.continues { jump } else { 0 };
        if is_contiguous && bytes <= cut.saturating_add(lengthened[between.start]) {
            last.end = run.end;
        } else {
            joined.push(run);
        }
    }
    joined
}

/// For each instruction, the bytes by which short jumps of `runs` grow if the code is cut before it.
fn lengthened(body: &Body, runs: &[Range<usize>]) -> Vec<u32> {
    let steps = &body.walk.steps;
    let mut changes = vec![0_i64; steps.len() + 1];
    for position in runs.iter().cloned().flatten() {
        let Some(reference) = steps[position].1.reference else { continue };
        if reference.form != Form::Short || reference.usage != Use::Jump {
            continue;
        }
        let Some(target) = reference.target.0.checked_sub(body.range.start.0) else { continue };
        let Ok(target) = steps.binary_search_by_key(&target, |(offset, _)| u64::from(*offset)) else {
            continue;
        };
        let (first, last) = (position.min(target), position.max(target));
        let grows = i64::from(growth(&steps[position].1));
        changes[first + 1] += grows;
        changes[last + 1] -= grows;
    }
    let mut total = 0;
    let sums = changes.iter().map(|change| {
        total += change;
        u32::try_from(total).unwrap_or(0)
    });
    sums.take(steps.len()).collect()
}
