//! Any bytes as a Mach-O image: functions have bytes, and every symbol can be written.

use reorder::image::macho::MachOImage;

pub(super) fn check(bytes: &[u8]) {
    if let Ok(image) = MachOImage::parse(bytes, None) {
        let functions = image.functions();
        assert!(functions.len() <= bytes.len());
        assert!(functions.iter().all(|(_, function)| function.end > function.start));
    }
}
