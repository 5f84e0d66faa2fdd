//! Where functions start: the cuts that divide `__text` into atoms.
//!
//! Cuts are those of `LC_FUNCTION_STARTS`; where that is empty, as in images of Zig's linker, symbols of `__text` and starts
//! of unwind entries. An atom reaches from one cut to the next, so padding belongs to the function before it. Where there
//! are function starts, symbols alone do not cut: hand-written functions have labels inside, and code that ends with a call
//! or a table at such a label belongs to the code after it.

use std::ops::Range;

use crate::macho::file::MachOFile;
use crate::macho::function_starts::function_starts;
use crate::macho::load_command::LinkEditPart;
use crate::macho::unwind_info::UnwindInfo;
use reorder_base::address::Address;
use reorder_base::address_index::AddressIndex;
use reorder_base::error::Result;
use reorder_base::refusal::{Refusal, RefusalCode};

/// Position of an atom, in address order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AtomIndex(pub u32);

/// The cuts of `__text`.
#[derive(Clone, Debug)]
pub struct Atoms {
    /// Starts, sorted; the first is that of `__text`.
    pub starts: Vec<Address>,
    /// The end of `__text`.
    pub end: Address,
    index: AddressIndex,
}

impl Atoms {
    /// Collects the cuts and adds the `further` ones.
    ///
    /// # Errors
    /// Refuses (M5) images without evidence of function starts.
    pub fn collect(file: &MachOFile<'_>, unwind: Option<&UnwindInfo>, further: &[Address]) -> Result<Self> {
        let text = file.text().range();
        let mut starts = function_starts(file)?;
        starts.retain(|start| text.contains(start));
        if starts.is_empty() {
            starts.extend(text_symbols(file).filter(|start| text.contains(start)));
            if !starts.is_empty() {
                starts
                    .extend(unwind.into_iter().flat_map(|info| info.entries.iter().map(|entry| entry.start)));
            }
        }
        if starts.is_empty() {
            return Err(Refusal::new(
                RefusalCode::MachOUnknownFunctions,
                "neither function starts nor symbols tell where functions begin",
                "link without -no_function_starts, or give the image before its symbols were stripped",
            )
            .at(text.start)
            .into());
        }
        starts.extend(further);
        starts.retain(|start| text.contains(start));
        starts.push(text.start);
        starts.sort_unstable();
        starts.dedup();
        Ok(Self::new(starts, text.end))
    }

    /// Atoms with these starts, sorted.
    pub(super) fn new(starts: Vec<Address>, end: Address) -> Self {
        let index = AddressIndex::new(starts.iter().map(|start| start.0));
        Self { starts, end, index }
    }

    /// Number of atoms.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none, which never happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The addresses of an atom.
    #[must_use]
    pub fn range(&self, index: AtomIndex) -> Range<Address> {
        let at = index.0 as usize;
        self.starts[at]..self.starts.get(at + 1).copied().unwrap_or(self.end)
    }

    /// The atom that holds `address`.
    #[must_use]
    pub fn containing(&self, address: Address) -> Option<AtomIndex> {
        if address >= self.end {
            return None;
        }
        let after = self.index.count_up_to(address.0, |at| self.starts[at].0);
        Some(AtomIndex(after.checked_sub(1)? as u32))
    }

    /// Whether an atom starts at `address`.
    #[must_use]
    pub fn is_start(&self, address: Address) -> bool {
        self.containing(address).is_some_and(|atom| self.starts[atom.0 as usize] == address)
    }

    /// The address ranges of all atoms, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<Address>> + '_ {
        (0..self.len() as u32).map(|index| self.range(AtomIndex(index)))
    }
}

/// Values of the symbols that are defined in `__text`, without those of debug maps.
fn text_symbols<'file>(file: &'file MachOFile<'_>) -> impl Iterator<Item = Address> + 'file {
    const STAB: u8 = 0xe0;
    const TYPE: u8 = 0x0e;
    const IN_SECTION: u8 = 0x0e;
    let number = file.text().number;
    let (entries, _) = file.link_edit_bytes(LinkEditPart::Symbols).as_chunks::<16>();
    entries.iter().filter_map(move |entry| {
        let [_, _, _, _, kind, section, _, _, value @ ..] = entry;
        let is_text = kind & STAB == 0 && kind & TYPE == IN_SECTION && u32::from(*section) == number;
        is_text.then(|| Address(u64::from_le_bytes(*value)))
    })
}
