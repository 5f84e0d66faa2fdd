//! Recordings of perf, and what perf script prints of them, with an image behind them or without.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("perf", bytes));
