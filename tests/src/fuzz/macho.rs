//! Any bytes as a Mach-O image: functions have bytes, and errors lie inside of the file.

use reorder_image::macho::MachOImage;

pub(super) fn check(bytes: &[u8]) {
    match MachOImage::parse(bytes, None) {
        Ok(image) => {
            let functions = image.names.functions();
            assert!(functions.len() <= bytes.len());
            assert!(functions.iter().all(|(_, function)| function.end > function.start));
        }
        Err(error) => assert!(error.offset.is_none_or(|offset| offset <= bytes.len() as u64), "{error}"),
    }
}
