//! Values of symbols after a move. Order, names and number of symbols stay, so indexes into the table stay valid.
//!
//! Source: `mach-o/nlist.h`, `mach-o/stab.h`, and what ld64 and lld write for debuggers.

use object::LittleEndian;
use object::macho::{N_SECT, N_TYPE, Nlist64};
use object::pod;
use object::read::macho::Nlist as _;

use crate::address_map::AddressMap;
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::load_command::LinkEditPart;

/// Debuggers' symbols of a function: its name and start, or, without a name, its size.
const N_FUN: u8 = 0x24;
/// The end of a function's symbols; ld64 gives it the size, others the start.
const N_ENSYM: u8 = 0x4e;
/// Where an entry has its value.
const VALUE: usize = 8;

/// The symbol table with new values.
///
/// # Errors
/// A table that is cut off.
pub(super) fn move_symbols(file: &MachOFile<'_>, map: &AddressMap) -> Result<Vec<u8>> {
    let bytes = file.link_edit_bytes(LinkEditPart::Symbols);
    let entries = pod::slice_from_all_bytes::<Nlist64<LittleEndian>>(bytes)
        .map_err(|()| Error::malformed(0, "the symbol table is cut off"))?;
    let names = file.link_edit_bytes(LinkEditPart::Strings);
    let mut moved = bytes.to_vec();
    let text = file.text();
    let mut function = None;
    for (index, entry) in entries.iter().enumerate() {
        let value = entry.n_value(LittleEndian);
        // Marks of the ends of other sections may have the address of a function.
        if u32::from(entry.n_sect) != text.number || !text.range().contains(&Address(value)) {
            continue;
        }
        let kind = entry.n_type().0;
        let follows = match kind {
            N_FUN => names.get(entry.n_strx.get(LittleEndian) as usize).is_some_and(|first| *first != 0),
            N_ENSYM => function == Some(value),
            _ => entry.is_stab() || kind & N_TYPE == N_SECT.0,
        };
        if !follows {
            continue;
        }
        if entry.is_stab() {
            function = Some(value);
        }
        let field = index * size_of::<Nlist64<LittleEndian>>() + VALUE;
        moved[field..field + 8].copy_from_slice(&map.map(Address(value)).0.to_le_bytes());
    }
    Ok(moved)
}
