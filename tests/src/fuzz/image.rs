//! Any bytes as an image: headers, functions, their basic blocks, a run of all of these and the whole analysis give a value or
//! an error.

use std::sync::Arc;

use reorder_image::basic_blocks::{BasicBlock, LoadedBytes, functions_apart, outline};
use reorder_image::code_digest::CodeDigest;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_trace::{RecordedBlock, RecordedBlocks, ResolvedTrace, executed_blocks};

pub(super) fn check(bytes: &[u8]) {
    let Ok(file) = ElfFile::parse(bytes) else { return };
    let Ok(functions) = ElfFunctions::collect(&file) else { return };
    let loaded = LoadedBytes::new(&file);
    let mut ran = ResolvedTrace { weight: 1, ..ResolvedTrace::default() };
    for ((index, function), is_apart) in functions.table.iter().zip(functions_apart(&functions.table)) {
        if is_apart && let Ok(found) = outline(&loaded, bytes, function.start..function.end) {
            let ends = |end| found.ends_instruction(end);
            assert!(
                found.blocks.iter().all(|block| found.begins_instruction(block.start) && ends(block.end))
            );
            let executed = |block: &BasicBlock| RecordedBlock {
                offset: block.start,
                size: block.end - block.start,
                nanoseconds: 0,
            };
            let blocks = found.blocks.iter().map(executed).collect();
            ran.functions.push(index);
            ran.blocks.push(Some(Arc::new(RecordedBlocks { digest: CodeDigest::of(&found), blocks })));
        }
    }
    let executed = executed_blocks(&[ran], &file, &functions.table);
    assert!(executed.outside[0].iter().all(|entry| functions.table.containing(*entry).is_none()));
    let _ = Analysis::new(&file, &functions);
}
