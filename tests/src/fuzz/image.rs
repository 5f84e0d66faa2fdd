//! Any bytes as an image: headers, functions and the whole analysis give a value or an error.

use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;

pub(super) fn check(bytes: &[u8]) {
    let Ok(file) = ElfFile::parse(bytes) else { return };
    let Ok(functions) = ElfFunctions::collect(&file) else { return };
    let _ = Analysis::new(&file, &functions);
}
