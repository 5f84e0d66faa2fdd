//! Any bytes as a profile of callgrind, or as a log of blocks by valgrind or QEMU.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use reorder::trace::formats::FORMATS;
use reorder::trace::{Companions, Input};

fuzz_target!(|bytes: &[u8]| {
    for format in
        FORMATS.iter().filter(|format| ["callgrind", "valgrind blocks", "QEMU blocks"].contains(&format.name))
    {
        let input = Input { bytes, path: Path::new("input"), companions: &Companions::default() };
        match (format.read)(&input) {
            Ok(reading) => assert!(reading.traces.iter().all(|trace| trace.events.len() <= bytes.len())),
            Err(error) => assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64), "{error}"),
        }
    }
});
