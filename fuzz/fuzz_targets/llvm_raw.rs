//! Raw profiles of LLVM, with the image of an instrumented program behind them or without: traces and notes, or an
//! error, all inside the profile.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use reorder::trace::formats::FORMATS;
use reorder::trace::{Companion, Companions, Input, statistics};

/// First bytes of ELF and Mach-O images.
const IMAGES: [&[u8]; 2] = [b"\x7fELF", b"\xcf\xfa\xed\xfe"];

fuzz_target!(|bytes: &[u8]| {
    let starts = |at: usize| IMAGES.iter().any(|magic| bytes[at..].starts_with(magic));
    let (profile, image) = bytes.split_at((0..bytes.len()).find(|&at| starts(at)).unwrap_or(bytes.len()));
    let companion = Companion { path: "image".into(), bytes: image.to_vec() };
    let companions = Companions::from(vec![companion]);
    let Some(format) = FORMATS.iter().find(|format| format.name == "LLVM raw profile") else {
        panic!("the format has another name");
    };
    let inside = |offset: u64| offset <= profile.len() as u64;
    match (format.read)(&Input { bytes: profile, path: Path::new("input"), companions: &companions }) {
        Ok(reading) => {
            assert!(reading.notes.iter().filter_map(|note| note.offset).all(inside));
            drop(statistics(&reading.traces));
        }
        Err(error) => assert!(error.offset.is_some_and(inside)),
    }
});
