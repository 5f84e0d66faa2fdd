//! What is known of the code of an image that describes little of it, while functions are learned.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use reorder_base::address::Address;
use reorder_image::elf::callbacks::CallbackCallers;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::found_functions::Extent;
use reorder_image::elf::functions::{ElfFunctions, is_linker_stub_section};

/// More bytes than compilers give one function.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;
/// Instructions that are examined for each byte of code, at most: a bound for hostile code.
const EXAMINED_EACH: u64 = 8;

/// Code in which functions may be learned.
#[derive(Debug)]
pub(super) struct UnknownCode {
    /// Sections of code.
    sections: Vec<Range<Address>>,
    /// The known functions, disjoint: ends by starts.
    known: BTreeMap<Address, Address>,
    /// Places that known code reads or writes: a breakpoint there would change data.
    read: BTreeSet<Address>,
    /// Places where no function can be learned.
    refused: BTreeSet<Address>,
    /// Instructions that may still be examined.
    budget: usize,
    /// The imported functions that call what they are passed.
    pub(super) callers: CallbackCallers,
}

impl UnknownCode {
    /// That of `file`; `None` if the image describes most of its code.
    pub(super) fn of(file: &ElfFile<'_>, functions: &ElfFunctions<'_>) -> Option<Self> {
        if functions.found.is_empty() {
            return None;
        }
        let code = file.sections.iter().filter(|section| {
            let is_code = section.is_loaded() && section.is_executable() && section.has_bytes();
            is_code && !is_linker_stub_section(section.name)
        });
        let sections: Vec<_> = code.map(|section| section.address..section.end()).collect();
        let bytes = sections.iter().map(|section| section.end.distance_from(section.start));
        let budget = bytes.fold(0, u64::saturating_add).saturating_mul(EXAMINED_EACH);
        let mut known: BTreeMap<Address, Address> = BTreeMap::new();
        // By start: functions that share bytes become one range.
        for (_, function) in functions.table.iter() {
            match known.last_entry().filter(|last| *last.get() > function.start) {
                Some(mut last) => *last.get_mut() = function.end.max(*last.get()),
                None => _ = known.insert(function.start, function.end),
            }
        }
        Some(Self {
            sections,
            known,
            read: functions.read.iter().copied().collect(),
            refused: BTreeSet::new(),
            budget: usize::try_from(budget).unwrap_or(usize::MAX),
            callers: CallbackCallers::of(file, &functions.dynamic_symbols),
        })
    }

    /// From `address` up to the next known function; `None` where a function is known, where none can be learned, and outside of
    /// code.
    pub(super) fn unknown_from(&self, address: Address) -> Option<Range<Address>> {
        let section = self.sections.iter().find(|section| section.contains(&address))?;
        let before = self.known.range(..=address).next_back();
        if before.is_some_and(|(_, end)| *end > address) || self.refused.contains(&address) {
            return None;
        }
        let next = self.known.range(address..).next().map_or(section.end, |(start, _)| *start);
        Some(address..next.min(section.end).min(address.plus(MAX_FUNCTION_BYTES)))
    }

    /// Instructions that may be examined to learn a function.
    pub(super) fn budget(&self) -> usize {
        self.budget
    }

    /// After the code at `target` was examined, with what is left of the budget: the function there, if it can be learned, is
    /// known from now on.
    pub(super) fn settle(
        &mut self,
        target: Address,
        budget: usize,
        found: Option<Extent>,
    ) -> Option<Range<Address>> {
        self.budget = budget;
        let fits = |found: &Extent| {
            let is_read = self.read.range(found.range.start..found.range.end).next().is_some();
            let reads_itself = found.read.iter().any(|place| found.range.contains(place));
            !is_read && !reads_itself && !found.read.iter().any(|place| self.is_known(*place))
        };
        let Some(found) = found.filter(fits) else {
            self.refused.insert(target);
            return None;
        };
        let Extent { range, read } = found;
        self.known.insert(range.start, range.end);
        self.read.extend(
            read.into_iter().filter(|place| self.sections.iter().any(|section| section.contains(place))),
        );
        Some(range)
    }

    fn is_known(&self, address: Address) -> bool {
        self.known.range(..=address).next_back().is_some_and(|(_, end)| *end > address)
    }
}
