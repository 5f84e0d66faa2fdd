//! Code outside of functions that runs may enter: what the loader calls before and after the program, and the stubs of the linker
//! that executed blocks call.
//!
//! No trace has such code, because nothing describes it. It keeps its place in every layout, so its pages count in each.
//!
//! It is a prediction. It has pages too many: every branch of an executed block counts as taken, and what the loader calls at the
//! end counts also if a run ends before. And it lacks some: nothing says where such code ends, so it is not followed, and
//! functions that are given whole are not looked at.

use std::collections::{BTreeSet, HashSet};

use object::elf::{DT_FINI, DT_INIT, SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_PREINIT_ARRAY};

use reorder_base::address::Address;
use reorder_image::decode::control::control_step;
use reorder_image::elf::dynamic::dynamic_entries;
use reorder_image::elf::file::{ElfFile, Linkage};
use reorder_image::elf::loaded_ranges::LoadedRanges;
use reorder_image::elf::relocation::{LoaderAction, loader_relocations};
use reorder_image::functions::FunctionTable;

/// An image's code outside of functions, for all runs.
pub(super) struct OutsideCode<'run, 'data> {
    file: &'run ElfFile<'data>,
    functions: &'run FunctionTable<'data>,
    code: LoadedRanges,
    called_by_loader: BTreeSet<Address>,
}

/// Where one run enters code outside of functions.
pub(super) struct OutsideEntries<'code> {
    outside: &'code OutsideCode<'code, 'code>,
    looked_at: HashSet<Address>,
    entries: Vec<Address>,
}

impl<'run, 'data> OutsideCode<'run, 'data> {
    pub(super) fn of(file: &'run ElfFile<'data>, functions: &'run FunctionTable<'data>) -> Self {
        let code = LoadedRanges::of_code(file);
        Self { file, functions, code, called_by_loader: called_by_loader(file) }
    }

    /// Of a run that has executed nothing yet: what the loader calls.
    pub(super) fn entries(&self) -> OutsideEntries<'_> {
        let mut entries = OutsideEntries { outside: self, looked_at: HashSet::new(), entries: Vec::new() };
        self.called_by_loader.iter().for_each(|called| entries.add(*called));
        entries
    }
}

impl OutsideEntries<'_> {
    /// Adds where the instructions of an executed block lead, which has `size` bytes at `start`.
    pub(super) fn add_block(&mut self, start: Address, size: u64) {
        let file = self.outside.file;
        let Some(code) = file.bytes_at(start, size) else { return };
        let mut offset = 0;
        // No step has length zero, and none is decoded from no bytes.
        while let Some(rest) = code.get(offset as usize..) {
            let Some(step) = control_step(file.processor, rest, start.plus(offset)) else { return };
            step.target.into_iter().for_each(|target| self.add(target));
            offset += step.length;
        }
    }

    /// In the order in which they were found, each once.
    pub(super) fn found(self) -> Vec<Address> {
        self.entries
    }

    fn add(&mut self, entry: Address) {
        let is_new = self.looked_at.insert(entry);
        let is_outside = || self.outside.functions.containing(entry).is_none();
        if is_new && self.outside.code.contain(entry) && is_outside() {
            self.entries.push(entry);
        }
    }
}

/// The addresses that the image's tables tell the loader to call. Relocations of a form that is not supported hide those of
/// position-independent images: then fewer pages are predicted.
fn called_by_loader(file: &ElfFile<'_>) -> BTreeSet<Address> {
    let dynamic = dynamic_entries(file).unwrap_or_default();
    let of_headers = dynamic.iter().filter(|entry| [DT_INIT.0, DT_FINI.0].contains(&entry.tag));
    let mut called: BTreeSet<Address> = of_headers.map(|entry| Address(entry.value)).collect();
    let kinds = [SHT_PREINIT_ARRAY.0, SHT_INIT_ARRAY.0, SHT_FINI_ARRAY.0];
    let lists = LoadedRanges::of(file, |section| kinds.contains(&section.kind));
    if file.linkage == Linkage::FixedAddress {
        let bytes =
            lists.iter().filter_map(|list| file.bytes_at(list.start, list.end.distance_from(list.start)));
        let words =
            bytes.flat_map(|bytes| bytes.chunks_exact(8)).filter_map(|word| word.first_chunk().copied());
        called.extend(words.map(|word| Address(u64::from_le_bytes(word))));
    }
    for relocation in loader_relocations(file, &dynamic).unwrap_or_default() {
        if let (true, LoaderAction::Relative(address)) = (lists.contain(relocation.place), relocation.action)
        {
            called.insert(address);
        }
    }
    called
}
