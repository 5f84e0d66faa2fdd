//! From counters to executed functions in order.
//!
//! With timestamps the first eight bytes of a function's counters are the time of its first call: the image's clock,
//! which counts such calls, starting at 1. What follows are its counters. Without timestamps everything is counters.

use super::encoding::Encoding;
use super::header::Flags;
use super::profile::Section;

/// Where one function's counters are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    pub(super) name_hash: u64,
    /// Offset in the section of the counters; `None` when it lies before the section.
    pub(super) counters: Option<u64>,
    pub(super) counter_count: u32,
}

/// A function that ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Executed {
    /// 0 without timestamps.
    pub(super) tick: u64,
    pub(super) name_hash: u64,
    /// Which of the functions it is.
    pub(super) number: usize,
    /// `None` where a byte only says that code ran.
    pub(super) count: Option<u64>,
}

/// The functions that ran.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// By time, or without timestamps the most frequent first.
    pub(super) executed: Vec<Executed>,
    pub(super) has_time: bool,
    /// How many functions have the time of another one.
    pub(super) equal_ticks: usize,
    pub(super) rejected: Rejected,
}

/// Functions whose counters are not to be believed.
#[derive(Debug, Default)]
pub(super) struct Rejected {
    pub(super) count: usize,
    /// The first of them, and what is wrong with it.
    pub(super) first: Option<(usize, &'static str)>,
}

impl Rejected {
    fn add(&mut self, number: usize, reason: &'static str) {
        self.count += 1;
        self.first.get_or_insert((number, reason));
    }
}

/// The section of the counters and how to read it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters<'data> {
    section: Section<'data>,
    encoding: Encoding,
    flags: Flags,
}

const SLOT: usize = 8;

impl<'data> Counters<'data> {
    pub(super) fn new(section: Section<'data>, encoding: Encoding, flags: Flags) -> Self {
        Self { section, encoding, flags }
    }

    /// Which of `functions` ran.
    pub(super) fn scan(&self, functions: impl Iterator<Item = Function> + Clone) -> Scan {
        // The compiler accepts timestamps together with one byte for each function, but writes none.
        let has_room = |function: Function| u64::from(function.counter_count) * self.width() > SLOT as u64;
        let has_time = self.flags.is_temporal() && functions.clone().any(has_room);
        let mut scan = Scan { has_time, ..Scan::default() };
        for (number, function) in functions.enumerate() {
            match self.executed(number, function, has_time) {
                Ok(executed) => scan.executed.extend(executed),
                Err(reason) => scan.rejected.add(number, reason),
            }
        }
        if has_time {
            scan.executed
                .sort_unstable_by_key(|function| (function.tick, function.name_hash, function.number));
            scan.equal_ticks = scan.executed.windows(2).filter(|pair| pair[0].tick == pair[1].tick).count();
        } else {
            scan.executed.sort_by_key(|function| std::cmp::Reverse(function.count));
        }
        scan
    }

    fn executed(
        &self,
        number: usize,
        function: Function,
        has_time: bool,
    ) -> Result<Option<Executed>, &'static str> {
        let counters = self.of(function)?;
        let (tick, counters) = if has_time {
            let tick = match self.encoding.u64_at(counters, 0) {
                // Where a byte of 0 says that code ran, the section starts as all ones.
                0 | u64::MAX => return Ok(None),
                tick => tick,
            };
            let counters = counters.get(SLOT..).filter(|counters| !counters.is_empty());
            (tick, counters.ok_or("they have no room for a timestamp")?)
        } else {
            (0, counters)
        };
        let count = self.count(counters);
        if !has_time && count == Some(0) {
            return Ok(None);
        }
        let count = if self.flags.is_byte_coverage() { None } else { count.map(|count| count.max(1)) };
        Ok(Some(Executed { tick, name_hash: function.name_hash, number, count }))
    }

    /// How often the function ran, as far as its counters tell. They lie on edges of its flow graph, of which only
    /// the first may be its entry: otherwise the largest one stands for all.
    fn count(&self, counters: &[u8]) -> Option<u64> {
        if self.flags.is_byte_coverage() {
            return Some(u64::from(counters.contains(&0)));
        }
        let values = || counters.chunks_exact(8).map(|counter| self.encoding.u64_at(counter, 0));
        let entries = values().next().filter(|_| self.flags.counts_entries_first());
        entries.filter(|&entries| entries > 0).or_else(|| values().max())
    }

    fn of(&self, function: Function) -> Result<&'data [u8], &'static str> {
        if function.counter_count == 0 {
            return Err("there are none");
        }
        let length = u64::from(function.counter_count) * self.width();
        let range = function.counters.and_then(|start| {
            Some(usize::try_from(start).ok()?..usize::try_from(start.checked_add(length)?).ok()?)
        });
        let counters = range.clone().and_then(|range| self.section.bytes.get(range));
        let counters = counters.ok_or("they do not lie in the section of the counters")?;
        // Eight bytes at once are written to aligned places only.
        let is_aligned = range.is_some_and(|range| range.start.is_multiple_of(SLOT));
        let must_be_aligned = self.width() == 8 || self.flags.is_temporal() && counters.len() > SLOT;
        if must_be_aligned && !is_aligned { Err("they are not aligned to 8 bytes") } else { Ok(counters) }
    }

    fn width(&self) -> u64 {
        if self.flags.is_byte_coverage() { 1 } else { 8 }
    }
}
