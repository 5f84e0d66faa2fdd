//! Any bytes as an image: headers, functions, their basic blocks and the whole analysis give a value or an error.

use reorder_image::basic_blocks::{LoadedBytes, functions_apart, outline};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;

pub(super) fn check(bytes: &[u8]) {
    let Ok(file) = ElfFile::parse(bytes) else { return };
    let Ok(functions) = ElfFunctions::collect(&file) else { return };
    let loaded = LoadedBytes::new(&file);
    for ((_, function), is_apart) in functions.table.iter().zip(functions_apart(&functions.table)) {
        if is_apart && let Ok(found) = outline(&loaded, bytes, function.start..function.end) {
            let ends = |end| found.ends_instruction(end);
            assert!(
                found.blocks.iter().all(|block| found.begins_instruction(block.start) && ends(block.end))
            );
        }
    }
    let _ = Analysis::new(&file, &functions);
}
