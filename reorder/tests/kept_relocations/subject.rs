//! What is known of an image, and the image with its functions permuted.

use std::collections::BTreeMap;

use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::kept_relocations::KeptRelocationSummary;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::pins::PinReason;
use reorder_layout::{LayoutRequest, Room, Strategy, lay_out};
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::elf::apply;
use reorder_relocate::apply::{Applied, Arrangement};

/// What the analysis says about an image: the comparison with the linker's list, the reasons of pinned functions and the
/// addresses of all, by name.
pub(crate) struct Analysed {
    pub(crate) kept: Option<KeptRelocationSummary>,
    pub(crate) pins: BTreeMap<String, PinReason>,
    #[allow(dead_code)] // one of the two test programs asks by address
    pub(crate) functions: BTreeMap<String, Address>,
}

pub(crate) fn analyse(bytes: &[u8]) -> Analysed {
    let file = ElfFile::parse(bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap();
    let analysis = Analysis::new(&file, &functions).unwrap();
    let named = || {
        functions.table.iter().map(|(index, function)| (functions.table.display_name(index), function.start))
    };
    // Functions of one name count as pinned if any of them is.
    let pins = named().filter_map(|(name, start)| Some((name, analysis.pin_at(start)?.reason))).collect();
    Analysed { kept: analysis.kept_relocations, pins, functions: named().collect() }
}

/// The image with its functions in a random order.
pub(crate) fn permute(bytes: &[u8], seed: u64) -> Result<Applied> {
    let file = ElfFile::parse(bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap();
    let analysis = Analysis::new(&file, &functions).unwrap();
    let request = LayoutRequest::of(Strategy::Random, seed);
    let layout = lay_out(&file, &functions.table, &[], Room::Linker, &request).unwrap();
    let arrangement = Arrangement::Order(&layout.order);
    apply(&file, &functions, analysis, arrangement, RelocateOptions::default())
}
