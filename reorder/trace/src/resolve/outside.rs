//! Code that ran although it belongs to no function: what the loader calls before and after the program, and the stubs of the
//! linker that executed blocks call.
//!
//! No trace has such code, because nothing describes it. It keeps its place in every layout, so its pages count in each. Only
//! the first instruction of each such piece is known to run: nothing says where a piece ends, and it is not followed.

use std::collections::HashSet;

use object::elf::{DT_FINI, DT_INIT, SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_PREINIT_ARRAY};

use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_image::decode::control::control_step;
use reorder_image::elf::dynamic::dynamic_entries;
use reorder_image::elf::file::{ElfFile, Linkage};
use reorder_image::elf::relocation::{LoaderAction, loader_relocations};
use reorder_image::functions::FunctionTable;

/// The places outside of functions where control leads in one run, in the order in which they are noted.
pub(super) struct OutsideCode<'run, 'data> {
    file: &'run ElfFile<'data>,
    functions: &'run FunctionTable<'data>,
    noted: HashSet<Address>,
    entries: Vec<Address>,
}

impl<'run, 'data> OutsideCode<'run, 'data> {
    /// With what the loader calls. A damaged table of the loader names nothing here; what writes the image refuses it.
    pub(super) fn called_by_loader(file: &'run ElfFile<'data>, functions: &'run FunctionTable<'data>) -> Self {
        let mut outside = Self { file, functions, noted: HashSet::new(), entries: Vec::new() };
        called_by_loader(file).unwrap_or_default().into_iter().for_each(|called| outside.note(called));
        outside
    }

    /// Adds where the instructions of an executed block lead, which has `size` bytes at `start`.
    pub(super) fn add_block(&mut self, start: Address, size: u64) {
        let Some(code) = self.file.bytes_at(start, size) else { return };
        let mut offset = 0;
        while let Some(rest) = code.get(offset as usize..) {
            let Some(step) = control_step(self.file.processor, rest, start.plus(offset)) else { return };
            step.target.into_iter().for_each(|target| self.note(target));
            offset += step.length;
        }
    }

    pub(super) fn entries(self) -> Vec<Address> {
        self.entries
    }

    fn note(&mut self, entry: Address) {
        let is_outside = || self.functions.containing(entry).is_none();
        let is_code = || {
            let mut code = self.file.sections.iter().filter(|section| section.is_executable());
            code.any(|section| section.contains(entry))
        };
        if !self.noted.contains(&entry) && is_outside() && is_code() {
            self.noted.insert(entry);
            self.entries.push(entry);
        }
    }
}

/// All that the tables of the image have the loader call.
fn called_by_loader(file: &ElfFile<'_>) -> Result<Vec<Address>> {
    let dynamic = dynamic_entries(file)?;
    let with_tag = |tag| dynamic.iter().filter(move |entry| entry.tag == tag).map(|entry| Address(entry.value));
    let kinds = [SHT_PREINIT_ARRAY.0, SHT_INIT_ARRAY.0, SHT_FINI_ARRAY.0];
    let lists: Vec<_> = file.sections.iter().filter(|section| kinds.contains(&section.kind)).collect();
    let mut called: Vec<Address> = with_tag(DT_INIT.0).collect();
    if file.linkage == Linkage::FixedAddress {
        let words = lists.iter().flat_map(|list| file.section_bytes(list).chunks_exact(8));
        let words = words.filter_map(|word| word.first_chunk().copied());
        called.extend(words.map(|word| Address(u64::from_le_bytes(word))));
    }
    for relocation in loader_relocations(file, &dynamic)? {
        let is_listed = lists.iter().any(|list| list.contains(relocation.place));
        if let (true, LoaderAction::Relative(address)) = (is_listed, relocation.action) {
            called.push(address);
        }
    }
    called.extend(with_tag(DT_FINI.0));
    Ok(called)
}
