//! What an entry for an absolute address says about the bytes at its place.

use crate::elf::code::{CodeSpace, Region};
use crate::elf::kept_relocations::{KeptEntry, KeptTable};
use crate::elf::symbol::Symbol;
use reorder_base::address::Address;

/// How an entry and the bytes go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The bytes are this address of code, and the entry says the same.
    Code(Address),
    /// No address of code that may move.
    Other,
    /// The bytes may be an address of code, but nothing says which byte of what is meant: that stays.
    Unclear,
    /// The entry names code, and the bytes are something else.
    Contradiction,
}

/// Compares the `width` bytes `stored`, zero-extended, with what `entry` says, short of `bias`.
pub(super) fn judge(
    code: &CodeSpace<'_>,
    table: &KeptTable<'_>,
    entry: &KeptEntry,
    symbol: &Symbol<'_>,
    stored: u64,
    (width, bias): (u8, u64),
) -> Verdict {
    let values = table.values(entry, symbol).map(|value| value.plus(bias));
    let matching = values.into_iter().find(|value| truncated(value.0, width) == stored);
    let is_in_arena = |address: Address| code.arena_of(address).is_some();
    if !table.names_code(symbol) {
        // A base before its object, as in `table[i - 8]`, may lie in the code without meaning it.
        let is_object = symbol.defining_section().is_some() && matching.is_some();
        return if is_object || !is_in_arena(Address(stored)) { Verdict::Other } else { Verdict::Unclear };
    }
    match matching {
        Some(target) if is_in_arena(target) => match !symbol.is_section() && entry.addend != 0 {
            // Another function follows the named one, which is not what is meant.
            true if leaves_symbol(symbol, target) => Verdict::Unclear,
            _ => Verdict::Code(target),
        },
        Some(_) if symbol.is_section() || !is_in_arena(symbol.value) => Verdict::Other,
        Some(_) => Verdict::Unclear,
        None => {
            let may_be_stub =
                symbol.binding != object::elf::STB_LOCAL.0 || symbol.kind == object::elf::STT_GNU_IFUNC.0;
            match code.region(Address(stored)) == Region::FixedCode && may_be_stub {
                true => Verdict::Other,
                false => Verdict::Contradiction,
            }
        }
    }
}

/// The target is no byte of the function that the symbol names. Labels have no size, and name what follows them.
fn leaves_symbol(symbol: &Symbol<'_>, target: Address) -> bool {
    target < symbol.value || symbol.size > 0 && target.distance_from(symbol.value) >= symbol.size
}

/// The low `width` bytes.
pub(super) fn truncated(value: u64, width: u8) -> u64 {
    if width == 4 { u64::from(value as u32) } else { value }
}
