//! Any bytes as a Mach-O image: functions have bytes, and every symbol can be written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use reorder::image::macho::MachOImage;

fuzz_target!(|bytes: &[u8]| if let Ok(image) = MachOImage::parse(bytes, None) {
    let functions = image.functions();
    assert!(functions.len() <= bytes.len());
    assert!(functions.iter().all(|(_, function)| function.end > function.start));
});
