//! Any bytes as a .gcda file, with a .gcno file behind it or without: parts of a trace, which are joined.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("gcov", bytes));
