//! Any bytes as a Machine IR profile, with a map behind it or without.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("machine_ir", bytes));
