//! The symbols of code of a Mach-O image, and what the linker's debug map says about them.
//!
//! The debug map is a run of symbols for each object file: its source files (`N_SO`), its path (`N_OSO`), its functions
//! (`N_FUN` with an address). It is there unless the image was linked without `-g` or stripped.

use object::LittleEndian;
use object::macho::{N_SECT, N_TYPE, Nlist64};
use object::read::macho::Nlist as _;

use reorder_base::address::Address;

const N_FUN: u8 = 0x24;
const N_SO: u8 = 0x64;
const N_OSO: u8 = 0x66;

/// The symbols of code.
#[derive(Default)]
pub(super) struct Symbols<'data> {
    /// Address and name, in the order of the table.
    pub(super) code: Vec<(Address, &'data [u8])>,
    /// Address, name, source file and object file.
    pub(super) debug_map: Vec<DebugEntry<'data>>,
}

/// A function of the debug map.
#[derive(Clone, Copy)]
pub(super) struct DebugEntry<'data> {
    pub(super) address: Address,
    pub(super) name: &'data [u8],
    pub(super) source: &'data [u8],
    pub(super) object: &'data [u8],
}

impl<'data> Symbols<'data> {
    /// Reads the symbols for which `is_code` holds, given the number of a symbol's section and its address.
    pub(super) fn read(
        table: &'data [Nlist64<LittleEndian>],
        strings: object::StringTable<'data>,
        is_code: impl Fn(u8, Address) -> bool,
    ) -> Self {
        let mut symbols = Self::default();
        let (mut source, mut object): (&[u8], &[u8]) = (b"", b"");
        for entry in table {
            // A name outside the string table costs only this symbol.
            let Ok(name) = entry.name(LittleEndian, strings) else { continue };
            let (kind, address) = (entry.n_type().0, Address(entry.n_value(LittleEndian)));
            match kind {
                // An empty name ends the object.
                N_SO if name.is_empty() => (source, object) = (b"", b""),
                N_SO => source = name,
                N_OSO => object = name,
                N_FUN if !name.is_empty() && !object.is_empty() && is_code(entry.n_sect, address) => {
                    symbols.debug_map.push(DebugEntry { address, name, source, object });
                }
                _ if entry.is_stab() => {}
                _ if kind & N_TYPE == N_SECT.0 && !name.is_empty() && is_code(entry.n_sect, address) => {
                    symbols.code.push((address, name));
                }
                _ => {}
            }
        }
        symbols
    }
}
