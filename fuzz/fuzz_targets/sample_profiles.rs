//! Profiles that count samples: traces, or an error that lies inside the file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("sample_profiles", bytes));
