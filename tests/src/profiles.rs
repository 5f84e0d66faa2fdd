//! Profiles made by real tools, kept in `tests/profiles`, and the orders that they hold.

use std::path::{Path, PathBuf};

use reorder_trace::{Companions, Reading, Trace, read_files};

/// Functions that `demo a` executes, in order; `source/demo.c` is the program of most samples.
pub const DEMO_A: [&str; 8] = [
    "main",
    "parse_args",
    "util_log",
    "load_config",
    "init_ui",
    "init_network",
    "draw_frame",
    "shutdown_all",
];

/// Functions that `demo b` executes, in order.
pub const DEMO_B: [&str; 7] =
    ["main", "parse_args", "util_log", "load_config", "init_network", "init_ui", "shutdown_all"];

/// A file of `tests/profiles`.
#[must_use]
pub fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles").join(name)
}

/// The sample called `name`, read with some companions.
///
/// # Errors
/// The reader's error.
pub fn read_sample(name: &str, companions: &[&str]) -> reorder_base::error::Result<Reading> {
    let companions: Vec<PathBuf> = companions.iter().map(|name| sample(name)).collect();
    read_files(&[sample(name)], &Companions::open(&companions)?)
}

/// The names of a trace's events in order, without the source file that LLVM puts before local names; locations
/// as they are displayed if there is no name.
#[must_use]
pub fn names(trace: &Trace) -> Vec<String> {
    let name = |symbol: &[u8]| {
        let text = String::from_utf8_lossy(symbol).into_owned();
        text.split_once(';').map_or(text.clone(), |(_, bare)| bare.to_owned())
    };
    trace.events.iter().map(|event| event.symbol().map_or_else(|| event.location.to_string(), name)).collect()
}

/// The one trace of a reading.
/// When there are several or none.
/// # Panics
/// When there are more or none.
#[must_use]
pub fn only(reading: Reading) -> Trace {
    let count = reading.traces.len();
    <[Trace; 1]>::try_from(reading.traces).map_or_else(|_| panic!("{count} traces"), |[trace]| trace)
}

/// The names of a trace's events with their times.
///
/// # Panics
/// When an event has no time.
#[must_use]
pub fn ticks(trace: &Trace) -> Vec<(String, u64)> {
    let ticks = trace.events.iter().map(|event| event.tick.expect("events have times"));
    names(trace).into_iter().zip(ticks).collect()
}
