//! Lists, output of DTrace, offsets and coverage files: traces, or an error that lies inside the file.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use reorder::trace::formats::FORMATS;
use reorder::trace::{Companions, Input};

const NAMES: &[&str] = &["plain list", "DTrace output", "Chromium offsets", "sanitizer coverage", "link map"];

fuzz_target!(|bytes: &[u8]| {
    let companions = Companions::default();
    let input = Input { bytes, path: Path::new("input"), companions: &companions };
    for format in FORMATS.iter().filter(|format| NAMES.contains(&format.name) && (format.accepts)(bytes)) {
        if let Err(error) = (format.read)(&input) {
            assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64));
        }
    }
});
