//! The files of a directory as uftrace writes it, the one called `info` first.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("uftrace", bytes));
