//! Raw profiles of LLVM, with the image of an instrumented program behind them or without.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("llvm_raw", bytes));
