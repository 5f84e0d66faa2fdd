//! Any bytes as a log or a list of XRay, with the map of an instrumented program behind it or without.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("xray", bytes));
