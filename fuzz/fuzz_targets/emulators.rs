//! Any bytes as a profile of callgrind, or as a log of blocks by valgrind or QEMU.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| reorder_fuzz::read("emulators", bytes));
