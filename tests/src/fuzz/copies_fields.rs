//! Real ELF images with damaged fields: refused with a reason, or given copies of random blocks, and proven.

use reorder_base::error::Error;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::Applied;
use reorder_relocate::apply::clones::with_random_fragments;
use reorder_relocate::debug::DebugPolicy;
use reorder_verify::{VerifyOptions, verify};

use super::seed_images::{Case, elf_case};

pub(super) fn check(input: &[u8]) {
    let Some(case) = elf_case(input) else { return };
    match copy(&case) {
        // Kept relocations, and no search table of unwind entries.
        Err(error) if ["R13", "R8"].iter().any(|code| error.to_string().contains(code)) => {}
        outcome => case.judge(outcome),
    }
}

fn copy(case: &Case) -> Result<(), Error> {
    let bytes = &*case.image;
    let file = ElfFile::parse(bytes)?;
    let functions = ElfFunctions::collect(&file)?;
    let unmoved = Applied::unmoved(&file, &functions.table);
    let in_place = |candidates: &[_]| Ok((0..candidates.len()).collect());
    let options = RelocateOptions { debug: DebugPolicy::Update, ..RelocateOptions::default() };
    let applied = with_random_fragments(&unmoved, u64::from(case.seed), options, in_place)?;
    if applied.bytes != bytes {
        let report =
            verify(bytes, &applied.bytes, VerifyOptions::default()).expect("the input was read before");
        assert!(report.is_proven(), "{:#?}", report.differences);
    }
    Ok(())
}
