//! Any bytes as a text profile of LLVM: traces, or an error that lies inside the file.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("llvm_text", bytes));
