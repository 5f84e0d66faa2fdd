//! Real ELF images with damaged fields: refused with a reason, or moved and proven, with the same instructions at their
//! new places, and restored to the same bytes by the map.

use reorder_base::error::Error;
use reorder_base::processor;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionTable;
use reorder_layout::{LayoutRequest, Room, Strategy, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::elf::{apply, layout_map};
use reorder_relocate::apply::{Applied, Arrangement};
use reorder_relocate::debug::DebugPolicy;
use reorder_verify::{VerifyOptions, verify};

use super::instructions::{Processor, assert_moved_alike};
use super::seed_images::{Case, elf_case};

pub(super) fn check(input: &[u8]) {
    let Some(case) = elf_case(input) else { return };
    let debug = if case.seed.is_multiple_of(2) { DebugPolicy::KeepStale } else { DebugPolicy::Update };
    let options = RelocateOptions { debug, ..RelocateOptions::default() };
    case.judge(relocate(&case, options));
}

fn relocate(case: &Case, options: RelocateOptions) -> Result<(), Error> {
    let bytes = &*case.image;
    let file = ElfFile::parse(bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    let analysis = Analysis::new(&file, &functions)?;
    let request = LayoutRequest::of(Strategy::Random, u64::from(case.seed / 2));
    let layout = lay_out(&file, &functions.table, &[], Room::InPlace(&analysis), &request)?;
    let applied = apply(&file, &functions, analysis, Arrangement::Order(&layout.order), options)?;
    let report = verify(bytes, &applied.bytes, VerifyOptions::default()).expect("the input was read before");
    assert!(report.is_proven(), "{:#?}", report.differences);
    let new = ElfFile::parse(&applied.bytes).expect("what is proven can be read");
    let decoded_as =
        if file.processor == processor::Processor::Aarch64 { Processor::AArch64 } else { Processor::X86 };
    assert_moved_alike(
        decoded_as,
        &applied.map,
        |place, size| file.bytes_at(place, size),
        |place, size| new.bytes_at(place, size),
    );
    if options.debug == DebugPolicy::KeepStale {
        assert_eq!(applied.bytes.len(), bytes.len(), "relocating in place keeps the size");
        assert_leads_back(&file, &functions.table, &applied, options, case);
    }
    Ok(())
}

fn assert_leads_back(
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    applied: &Applied,
    options: RelocateOptions,
    case: &Case,
) {
    let Some(map) = case.way_back(layout_map(file, functions, applied, options)) else { return };
    if map.is_one_way {
        return;
    }
    let new = ElfFile::parse(&applied.bytes).expect("what is proven can be read");
    let functions = ElfFunctions::collect(&new).expect("what is proven has functions");
    let analysis = Analysis::new(&new, &functions).expect("what is proven can be analysed");
    let back =
        apply(&new, &functions, analysis, Arrangement::Map(&map), options).expect("the map leads back");
    assert!(back.bytes == file.bytes, "the map does not lead back");
}
