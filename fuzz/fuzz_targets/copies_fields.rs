#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| reorder_fuzz::check("copies_fields", bytes));
