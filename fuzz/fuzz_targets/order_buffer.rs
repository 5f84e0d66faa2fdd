//! Any bytes as a buffer of clang's order-file instrumentation, with a mapping behind it or without.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("order_buffer", bytes));
