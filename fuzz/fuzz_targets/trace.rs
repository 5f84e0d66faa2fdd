//! Any bytes as a trace file of any format: traces, or an error that lies inside the file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::detect_and_read(bytes));
