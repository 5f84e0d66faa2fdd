//! Any bytes as a trace file of any format: traces, or an error that lies inside the file.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use reorder::trace::{Companions, read_bytes, statistics};

fuzz_target!(|bytes: &[u8]| {
    match read_bytes(bytes, Path::new("input"), &Companions::default()) {
        Ok(reading) => drop(statistics(&reading.traces)),
        Err(error) => assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64)),
    }
});
