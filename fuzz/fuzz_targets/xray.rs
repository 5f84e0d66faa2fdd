//! Any bytes as a log of XRay, with and without the map of an instrumented program.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use reorder::trace::formats::FORMATS;
use reorder::trace::{Companions, Input};

fn companions() -> &'static Companions {
    static COMPANIONS: OnceLock<Companions> = OnceLock::new();
    COMPANIONS.get_or_init(|| {
        let object = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/profiles/xray/relocatable.o");
        Companions::open(&[object]).unwrap_or_default()
    })
}

fuzz_target!(|bytes: &[u8]| {
    for format in FORMATS.iter().filter(|format| format.name.starts_with("XRay")) {
        let input = Input { bytes, path: Path::new("input"), companions: companions() };
        if let Err(error) = (format.read)(&input) {
            assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64), "{error}");
        }
    }
});
