//! Lists, output of DTrace, offsets and coverage files, with an image behind them or without.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("texts", bytes));
