//! Any bytes as an image: headers, functions and the whole analysis give a value or an error.

use reorder::image::analysis::Analysis;
use reorder::image::elf::file::ElfFile;
use reorder::image::functions::FunctionTable;

pub(super) fn check(bytes: &[u8]) {
    let Ok(file) = ElfFile::parse(bytes) else { return };
    let Ok(functions) = FunctionTable::collect(&file) else { return };
    let _ = Analysis::new(&file, &functions);
}
