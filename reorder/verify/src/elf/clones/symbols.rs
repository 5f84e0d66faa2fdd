//! The symbols that name copies. They are in a table that is not loaded; debuggers and profilers read it.
//!
//! Each is that of one copy, and has the name of the function that the original belongs to, with a suffix.

use std::collections::BTreeSet;

use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};
use goblin::elf::sym::{STB_GLOBAL, STT_FUNC, STV_HIDDEN};

use super::copies::Copies;
use crate::bytes::{u16_at, u64_at};
use crate::elf::symbol_walk::{SYMBOL_SIZE, symbol_at, symbols};
use crate::elf::view::{ElfView, SectionView};
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};

/// What the names of copies end with; from the second copy with a name on, a point and a number follow.
const SUFFIX: &[u8] = b".reorder";

/// The name of the function that a copy of this name is of.
fn stem(name: &[u8]) -> Option<&[u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let unnumbered = name[..name.len() - digits].strip_suffix(b".").filter(|_| digits > 0);
    unnumbered.unwrap_or(name).strip_suffix(SUFFIX).filter(|stem| !stem.is_empty())
}

/// Checks that the symbols which only the new image has are those of copies; `index` is that of the section of copies.
pub(super) fn check_added_symbols(copies: &Copies<'_>, index: usize, findings: &mut Findings) {
    let mut names = Names::of(copies.old, copies.new.bytes.len());
    let mut seen = BTreeSet::new();
    for (before, after) in copies.old.sections.iter().zip(&copies.new.sections) {
        if before.kind != SHT_SYMTAB {
            continue;
        }
        let strings = copies.new.sections.get(after.link as usize);
        for number in before.bytes.len() / SYMBOL_SIZE..after.bytes.len() / SYMBOL_SIZE {
            let offset = number * SYMBOL_SIZE;
            let value = NewAddress(u64_at(after.bytes, offset + 8).unwrap_or(0));
            let found = match is_of_copy(copies, (after, number), index, value) {
                false => Some(value.to_string()),
                true if copies.fragment_at(value).is_none() => None,
                true if !seen.insert(value) => Some(format!("a second one of {value}")),
                true => names.mismatch(copies, (after, number), strings),
            };
            if let Some(found) = found {
                let name = format!("added symbol {number}");
                let place = Some(after.offset + offset as u64);
                findings.differs(Difference::new(Check::Copies, place, name, "the name of a copy", found));
            }
        }
    }
}

/// Whether a symbol is that of a copy, apart from its name. Images of whole functions have symbols for places inside them.
fn is_of_copy(
    copies: &Copies<'_>,
    (table, number): (&SectionView<'_>, usize),
    index: usize,
    value: NewAddress,
) -> bool {
    let offset = number * SYMBOL_SIZE;
    let is_inside =
        u16_at(table.bytes, offset + 6).map(usize::from) == Some(index) && copies.may_be_named(value);
    let Some(copied) = copies.fragment_at(value) else { return is_inside };
    let kind = [STB_GLOBAL << 4 | STT_FUNC, STV_HIDDEN];
    is_inside
        && table.bytes.get(offset + 4..offset + 6) == Some(&kind[..])
        && u64_at(table.bytes, offset + 16) == Some(copied.copy_size)
}

/// The names of the old image's symbols by address.
struct Names<'data> {
    /// Ascending by address: what their string tables hold from the name on.
    by_address: Vec<(Address, &'data [u8])>,
    /// Starts of functions of known size, ascending.
    starts: Vec<Address>,
    /// The fragments of a function have similar names: functions and their names that were found right.
    right: BTreeSet<(Address, &'data [u8])>,
    /// Names of copies: two global symbols of one name are an error for linkers and rewriters.
    seen: BTreeSet<&'data [u8]>,
    /// Bytes of names that may still be read, and names that may be compared: in a hostile image, names may overlap.
    budget: usize,
}

impl<'data> Names<'data> {
    fn of(image: &ElfView<'data>, budget: usize) -> Self {
        let mut by_address = Vec::new();
        let mut starts = Vec::new();
        for kind in [SHT_SYMTAB, SHT_DYNSYM] {
            for section in image.sections.iter().filter(|section| section.kind == kind) {
                let Some(strings) = image.sections.get(section.link as usize) else { continue };
                let found = (0..).map_while(|number| symbol_at(section, number));
                by_address.extend(found.filter(|symbol| symbol.is_defined()).filter_map(|symbol| {
                    Some((Address(symbol.value), strings.bytes.get(symbol.name as usize..)?))
                }));
            }
            let sized = symbols(image, kind).filter(|symbol| symbol.is_sized_function());
            starts.extend(sized.map(|symbol| Address(symbol.value)));
        }
        by_address.sort_by_key(|(address, _)| *address);
        starts.sort_unstable();
        Self { by_address, starts, right: BTreeSet::new(), seen: BTreeSet::new(), budget }
    }

    /// What is wrong with the name of the symbol `number` of a fragment.
    fn mismatch(
        &mut self,
        copies: &Copies<'_>,
        (table, number): (&SectionView<'_>, usize),
        strings: Option<&SectionView<'data>>,
    ) -> Option<String> {
        let symbol = symbol_at(table, number)?;
        let original = copies.fragment_at(NewAddress(symbol.value))?.original;
        let after = self.starts.partition_point(|start| *start <= original);
        let start = after.checked_sub(1).map_or(Address(0), |last| self.starts[last]);
        let names = strings.and_then(|strings| strings.bytes.get(symbol.name as usize..)).unwrap_or_default();
        let names = &names[..names.len().min(self.budget)];
        let name = names.split(|byte| *byte == 0).next().unwrap_or_default();
        self.budget -= name.len();
        let stem = stem(name).unwrap_or_default();
        let is_second = !self.seen.insert(name);
        let known = (start, stem);
        if !is_second && self.right.contains(&known) {
            return None;
        }
        // A symbol of unknown size may begin a function between the last start and the fragment.
        let from = self.by_address.partition_point(|(address, _)| *address < start);
        let near = self.by_address[from..].iter().take_while(|(address, _)| *address <= original);
        let mut near = near.take(self.budget).inspect(|_| self.budget -= 1);
        let is_right = !is_second
            && !stem.is_empty()
            && near.any(|(_, known)| known.starts_with(stem) && known.get(stem.len()) == Some(&0));
        match is_right {
            true => {
                self.right.insert(known);
                None
            }
            false => Some(format!("{} for a part of the function at {start}", String::from_utf8_lossy(name))),
        }
    }
}
