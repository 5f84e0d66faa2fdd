//! What recording cost.

use std::time::Duration;

use serde::Serialize;

/// Figures over all runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Functions executed for the first time.
    pub first_executions: u64,
    /// Basic blocks executed for the first time, the first ones of functions included; 0 where they are not recorded.
    pub first_blocks: u64,
    /// Bytes of code in which breakpoints were planted.
    pub armed_bytes: u64,
    /// Time to plant them.
    pub arming_nanoseconds: u64,
    /// Executed programs that this user may not look at, which ran unrecorded; of each run's last pass.
    pub forbidden_programs: u64,
    /// Processes that still ran when the program had ended, and went on unrecorded; of each run's last pass.
    pub left_running: u64,
    /// A program read its standard input, which was empty because none was given.
    pub read_empty_input: bool,
    /// Time that the recorder held the program at each first execution, in order of occurrence.
    #[serde(skip)]
    stops: Vec<u32>,
}

impl Statistics {
    pub(super) fn first_execution(&mut self, of_function: bool, blocks: u64, held: Duration) {
        self.first_executions += u64::from(of_function);
        self.first_blocks += blocks;
        self.stops.push(u32::try_from(held.as_nanos()).unwrap_or(u32::MAX));
    }

    pub(super) fn armed(&mut self, bytes: u64, time: Duration) {
        self.armed_bytes += bytes;
        self.arming_nanoseconds += time.as_nanos() as u64;
    }

    /// Half of the first executions held the program for no longer than this; the two switches between program
    /// and recorder come on top.
    pub fn median_stop_nanoseconds(&self) -> u64 {
        let mut stops = self.stops.clone();
        stops.sort_unstable();
        stops.get(stops.len() / 2).copied().unwrap_or(0).into()
    }
}
