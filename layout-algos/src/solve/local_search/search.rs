//! The changes that are tried.

use std::collections::BTreeMap;

use super::arrangement::{Arrangement, Run, Shift};
use crate::control::Control;
use crate::random::Random;

/// Functions of the shorter of two runs that go past each other.
const SHORT_RUN: u64 = 4;

/// Functions of the longer one.
const LONG_RUN: u64 = 64;

/// Pages that two runs of equal size may span each: longer ones hardly ever fit and cost time.
const EQUAL_RUN_PAGES: u64 = 2;

/// Pages that two runs past each other may span together, which bounds the time of one try.
const PASSING_PAGES: u64 = 16;

/// Groups of functions with the same traces that another one goes past.
const PASSED_GROUPS: u64 = 24;

/// Pages that such groups may span together.
const PASSING_GROUPS_PAGES: u64 = 64;

/// Functions that are looked through for the end of a group.
const MAX_GROUP_LENGTH: usize = 256;

/// Tries between two looks at whether to stop.
const TRIES_PER_LOOK: u64 = 4096;

/// Tries changes and keeps what makes an arrangement cheaper.
pub(super) struct Search<'arrangement, 'costs> {
    arrangement: &'arrangement mut Arrangement<'costs>,
    page_size: u64,
    random: Random,
    /// What may be moved.
    movable: Run,
    /// Movable rows by padded size: functions that can change places without anything else moving.
    same_size: BTreeMap<u64, Vec<u32>>,
    /// The lowest row.
    first_row: u32,
    /// By row, the lowest first: its position.
    positions: Vec<u32>,
    scratch: Vec<u16>,
}

impl<'arrangement, 'costs> Search<'arrangement, 'costs> {
    pub(super) fn new(
        arrangement: &'arrangement mut Arrangement<'costs>,
        movable: Run,
        page_size: u64,
        random: Random,
    ) -> Self {
        let mut same_size: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
        for placed in &arrangement.placed()[movable.clone()] {
            same_size.entry(placed.padded).or_default().push(placed.row);
        }
        let rows = || arrangement.placed().iter().map(|placed| placed.row);
        let first_row = rows().min().unwrap_or(0);
        let mut positions = vec![0; rows().max().map_or(0, |last| (last - first_row) as usize + 1)];
        for (position, row) in rows().enumerate() {
            positions[(row - first_row) as usize] = position as u32;
        }
        Self { arrangement, page_size, random, movable, same_size, first_row, positions, scratch: Vec::new() }
    }

    /// Makes the given number of tries. Stops early when no try of the last half was kept.
    pub(super) fn run(mut self, tries: u64, control: &Control<'_>) {
        if self.movable.len() < 2 {
            return;
        }
        let mut last_change = 0;
        for number in 0..tries {
            // Groups are rare, because each try takes as long as many of the others.
            let is_better = match self.random.below(32) {
                0 => self.pass_groups(),
                1..=14 => self.exchange(),
                15..=23 => self.exchange_runs(),
                _ => self.pass(),
            };
            if is_better {
                last_change = number;
            } else if number - last_change > tries / 2
                || number % TRIES_PER_LOOK == 0 && control.is_cancelled()
            {
                break;
            }
        }
    }

    fn any_movable(&mut self) -> usize {
        self.movable.start + self.random.below(self.movable.len() as u64) as usize
    }

    /// Two functions of the same size.
    fn exchange(&mut self) -> bool {
        let one = self.any_movable();
        let Some(rows) = self.same_size.get(&self.arrangement.placed()[one].padded) else { return false };
        let other = rows[self.random.below(rows.len() as u64) as usize];
        let other = self.positions[(other - self.first_row) as usize] as usize;
        if one == other || self.arrangement.exchange_gain(one, other) <= 0 {
            return false;
        }
        self.arrangement.exchange(one, other);
        self.note_positions(one..one + 1);
        self.note_positions(other..other + 1);
        true
    }

    /// Two runs of the same size.
    fn exchange_runs(&mut self) -> bool {
        let (one, other) = (self.any_movable(), self.any_movable());
        let Some([one, other]) = self.equal_runs(one.min(other), one.max(other)) else { return false };
        let distance = self.start(&other) as i64 - self.start(&one) as i64;
        self.try_shift([Shift { run: one, by: distance }, Shift { run: other, by: -distance }])
    }

    /// Two neighbouring runs, past each other.
    fn pass(&mut self) -> bool {
        let start = self.any_movable();
        let short = 1 + self.random.below(SHORT_RUN) as usize;
        let long = 1 + self.random.below(LONG_RUN) as usize;
        let (first, second) = if self.random.below(2) == 0 { (short, long) } else { (long, short) };
        self.pass_runs(start..start + first, start + first..start + first + second, PASSING_PAGES)
    }

    fn pass_runs(&mut self, one: Run, other: Run, most_pages: u64) -> bool {
        if one.is_empty()
            || other.is_empty()
            || other.end > self.movable.end
            || self.end(&other) - self.start(&one) > most_pages * self.page_size
            || !self.arrangement.is_dense(one.start..other.end)
        {
            return false;
        }
        let bytes = |run: &Run| (self.end(run) - self.start(run)) as i64;
        let (by_one, by_other) = (bytes(&other), -bytes(&one));
        self.try_shift([Shift { run: one, by: by_one }, Shift { run: other, by: by_other }])
    }

    /// A group of functions with the same traces, past some of its neighbours.
    fn pass_groups(&mut self) -> bool {
        let start = self.any_movable();
        let group = self.group_end(start, false)..self.group_end(start, true);
        let towards_end = self.random.below(2) == 0;
        let mut passed = if towards_end { group.end..group.end } else { group.start..group.start };
        for _ in 0..=self.random.below(PASSED_GROUPS) {
            if towards_end && passed.end < self.movable.end {
                passed.end = self.group_end(passed.end, true);
            } else if !towards_end && passed.start > self.movable.start {
                passed.start = self.group_end(passed.start - 1, false);
            }
        }
        let (one, other) = if towards_end { (group, passed) } else { (passed, group) };
        self.pass_runs(one, other, PASSING_GROUPS_PAGES)
    }

    /// Where the group of functions with the same traces around `position` ends, in one direction.
    fn group_end(&self, position: usize, towards_end: bool) -> usize {
        let same = |other: &usize| self.arrangement.have_same_traces(position, *other);
        if towards_end {
            (position..self.movable.end)
                .take(MAX_GROUP_LENGTH)
                .take_while(same)
                .last()
                .map_or(position, |last| last + 1)
        } else {
            (self.movable.start..=position)
                .rev()
                .take(MAX_GROUP_LENGTH)
                .take_while(same)
                .last()
                .unwrap_or(position)
        }
    }

    fn try_shift(&mut self, shifts: [Shift; 2]) -> bool {
        if self.arrangement.shift_gain(&shifts, &mut self.scratch) <= 0 {
            return false;
        }
        self.arrangement.shift(&shifts);
        self.note_positions(shifts[0].run.start..shifts[1].run.end);
        true
    }

    /// The shortest runs of equal padded size from two positions on, without gaps and overlap.
    fn equal_runs(&self, one: usize, other: usize) -> Option<[Run; 2]> {
        let placed = self.arrangement.placed();
        let (mut one, mut other) = (one..one + 1, other..other + 1);
        loop {
            let bytes = [&one, &other].map(|run| self.end(run) - self.start(run));
            if one.end > other.start || bytes[0].max(bytes[1]) > EQUAL_RUN_PAGES * self.page_size {
                return None;
            }
            let shorter = match bytes[0].cmp(&bytes[1]) {
                std::cmp::Ordering::Less => &mut one,
                std::cmp::Ordering::Greater => &mut other,
                std::cmp::Ordering::Equal => return Some([one, other]),
            };
            if shorter.end >= self.movable.end || placed[shorter.end].start != placed[shorter.end - 1].end() {
                return None;
            }
            shorter.end += 1;
        }
    }

    fn start(&self, run: &Run) -> u64 {
        self.arrangement.placed()[run.start].start
    }

    fn end(&self, run: &Run) -> u64 {
        self.arrangement.placed()[run.end - 1].end()
    }

    fn note_positions(&mut self, run: Run) {
        for position in run {
            let row = self.arrangement.placed()[position].row;
            self.positions[(row - self.first_row) as usize] = position as u32;
        }
    }
}
