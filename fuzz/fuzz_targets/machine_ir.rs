//! Any bytes as a Machine IR profile: traces, or an error that lies inside the file.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use reorder::trace::formats::FORMATS;
use reorder::trace::{Companions, Input, statistics};

fuzz_target!(|bytes: &[u8]| {
    let companions = Companions::default();
    // No directory has files beside this one.
    let input = Input { bytes, path: Path::new("/nowhere/input"), companions: &companions };
    for format in FORMATS.iter().filter(|format| format.name == "Machine IR Profile") {
        (format.accepts)(bytes);
        match (format.read)(&input) {
            Ok(reading) => drop(statistics(&reading.traces)),
            Err(error) => assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64)),
        }
    }
});
