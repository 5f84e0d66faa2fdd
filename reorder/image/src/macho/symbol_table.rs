//! The symbol table as it is in the image, debugging symbols included.
//!
//! Source: `mach-o/nlist.h` and `mach-o/stab.h`.

use object::LittleEndian;
use object::macho::{N_SECT, N_TYPE, Nlist64};
use object::pod;
use object::read::macho::Nlist as _;

use super::file::MachOFile;
use super::load_command::LinkEditPart;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};

/// One symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol<'data> {
    /// As the linker spells it; empty if it lies outside the table of names.
    pub name: &'data [u8],
    /// `n_type`.
    pub kind: u8,
    /// The section's number, 0 for none.
    pub section: u8,
    /// `n_value`.
    pub value: u64,
}

impl Symbol<'_> {
    /// The address, if the symbol names one and is not a debugging symbol.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        (!self.is_debug() && self.kind & N_TYPE == N_SECT.0).then_some(Address(self.value))
    }

    /// Whether only debuggers use it.
    #[must_use]
    pub fn is_debug(&self) -> bool {
        self.kind & object::macho::N_STAB != 0
    }
}

/// All symbols in the table's order.
///
/// # Errors
/// A table that is cut off.
pub fn symbols<'data>(file: &MachOFile<'data>) -> Result<impl Iterator<Item = Symbol<'data>> + use<'data>> {
    let bytes = file.link_edit_bytes(LinkEditPart::Symbols);
    let names = file.link_edit_bytes(LinkEditPart::Strings);
    let entries = pod::slice_from_all_bytes::<Nlist64<LittleEndian>>(bytes)
        .map_err(|()| Error::malformed(0, "the symbol table is cut off"))?;
    Ok(entries.iter().map(move |entry| {
        let name = names.get(entry.n_strx.get(LittleEndian) as usize..).unwrap_or_default();
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(0);
        Symbol {
            name: &name[..end],
            kind: entry.n_type().0,
            section: entry.n_sect,
            value: entry.n_value(LittleEndian),
        }
    }))
}
