//! Any bytes as a Mach-O image whose functions are moved: refused, or an image that its verifier accepts.

use reorder_image::functions::FunctionIndex;
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::macho::file::MachOFile;
use reorder_relocate::apply::Arrangement;
use reorder_relocate::apply::macho::{MachOOptions, apply};

pub(super) fn check(bytes: &[u8]) {
    let Ok(file) = MachOFile::parse(bytes) else { return };
    let Ok(names) = file.code_names() else { return };
    let Ok(analysis) = MachOAnalysis::new(&file) else { return };
    let functions = names.functions_within(file.text().range());
    let backwards: Vec<FunctionIndex> = (0..functions.len() as u32).rev().map(FunctionIndex).collect();
    let options = MachOOptions { most_pinned_percent: 100, allow_swift_pins: true };
    if let Ok(applied) = apply(&file, &functions, &analysis, Arrangement::Order(&backwards), options) {
        assert!(MachOFile::parse(&applied.bytes).is_ok());
    }
}
