//! Real Mach-O images with damaged fields: refused with a reason, or moved and proven, with the same instructions at
//! their new places, and restored to the same bytes by the map.

use object::macho::CPU_TYPE_ARM64;
use reorder_base::error::Error;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::macho::analysis::MachOAnalysis;
use reorder_image::macho::file::MachOFile;
use reorder_relocate::apply::macho::{MachOOptions, apply, layout_map};
use reorder_relocate::apply::{Applied, Arrangement};
use reorder_verify::{VerifyOptions, verify};

use super::instructions::{Processor, assert_moved_alike};
use super::seed_images::{Case, macho_case};

pub(super) fn check(input: &[u8]) {
    let Some(case) = macho_case(input) else { return };
    case.judge(relocate(&case));
}

fn relocate(case: &Case) -> Result<(), Error> {
    let bytes = &*case.image;
    let file = MachOFile::parse(bytes)?;
    let names = file.code_names()?;
    let analysis = MachOAnalysis::new(&file)?;
    let functions = names.functions_within(file.text().range());
    let order = shuffled(functions.len(), case.seed);
    let options = MachOOptions { most_pinned_percent: 100, allow_swift_pins: true };
    let applied = apply(&file, &functions, &analysis, Arrangement::Order(&order), options)?;
    let report = verify(bytes, &applied.bytes, VerifyOptions::default()).expect("the input was read before");
    assert!(report.is_proven(), "{:#?}", report.differences);
    let new = MachOFile::parse(&applied.bytes).expect("what is proven can be read");
    let is_arm = bytes[4..8] == CPU_TYPE_ARM64.0.to_le_bytes();
    let processor = if is_arm { Processor::AArch64 } else { Processor::X86 };
    assert_moved_alike(
        processor,
        &applied.map,
        |place, size| file.bytes_at(place, size),
        |place, size| new.bytes_at(place, size),
    );
    assert_leads_back(&file, &functions, &applied, options, case);
    Ok(())
}

/// All functions, in an order that the seed chooses.
fn shuffled(functions: usize, seed: u8) -> Vec<FunctionIndex> {
    let mut order: Vec<FunctionIndex> = (0..functions as u32).map(FunctionIndex).collect();
    let factor = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    order.sort_by_key(|index| u64::from(index.0 + 1).wrapping_mul(factor).rotate_left(32));
    order
}

fn assert_leads_back(
    file: &MachOFile<'_>,
    functions: &FunctionTable<'_>,
    applied: &Applied,
    options: MachOOptions,
    case: &Case,
) {
    let Some(map) = case.way_back(layout_map(file, functions, applied)) else { return };
    let new = MachOFile::parse(&applied.bytes).expect("what is proven can be read");
    let names = new.code_names().expect("what is proven can be read");
    let analysis = MachOAnalysis::new(&new).expect("what is proven can be analysed");
    let functions = names.functions_within(new.text().range());
    let back =
        apply(&new, &functions, &analysis, Arrangement::Map(&map), options).expect("the map leads back");
    assert!(back.bytes == file.bytes, "the map does not lead back");
}
