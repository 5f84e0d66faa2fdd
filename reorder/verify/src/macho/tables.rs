//! Tables of addresses in `__LINKEDIT`, and other lists of functions: function starts, data in code, symbols, entry and
//! initialisers.
//!
//! Sources: `mach-o/loader.h`, `mach-o/nlist.h` and `mach-o/stab.h` of Apple's cctools.

use super::super::bytes::{read_uleb128, u16_at, u32_at, u64_at};
use super::super::report::{Check, Difference};
use super::pair::{Ledger, MachPair};
use super::view::{MachView, Part, SectionView};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};

/// `LC_MAIN`.
const MAIN: u32 = 0x8000_0028;
/// Bytes of a symbol.
const SYMBOL: usize = 16;

/// One entry of the symbol table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SymbolView {
    /// Name's position in the strings.
    pub(super) name: u32,
    pub(super) kind: u8,
    pub(super) section: u8,
    pub(super) description: u16,
    pub(super) value: u64,
}

impl SymbolView {
    /// Whether it is for debuggers.
    fn is_stab(&self) -> bool {
        self.kind & 0xe0 != 0
    }

    /// Whether it is defined in the section with this number, and not for debuggers.
    pub(super) fn is_in(&self, section: usize) -> bool {
        const SECTION: u8 = 0x0e;
        !self.is_stab() && self.kind & SECTION == SECTION && usize::from(self.section) == section
    }
}

/// The symbol table, in file order.
pub(super) fn symbols<'a>(image: &MachView<'a>) -> impl Iterator<Item = SymbolView> + use<'a> {
    let (_, table) = image.part(Part::Symbols);
    table.chunks_exact(SYMBOL).filter_map(|entry| {
        Some(SymbolView {
            name: u32_at(entry, 0)?,
            kind: entry[4],
            section: entry[5],
            description: u16_at(entry, 6)?,
            value: u64_at(entry, 8)?,
        })
    })
}

/// The symbols are the same at the same positions; values in `__text` follow the map.
pub(super) fn check_symbols(pair: MachPair<'_>, ledger: &mut Ledger<'_>) {
    const FUNCTION: u8 = 0x24;
    const END: u8 = 0x4e;
    let number = pair.old.text_number();
    let (position, new_table) = pair.new.part(Part::Symbols);
    let (_, old_table) = pair.old.part(Part::Symbols);
    let mut count = 0;
    for (index, (old, new)) in symbols(pair.old).zip(symbols(pair.new)).enumerate() {
        count += 1;
        let offset = position + index * SYMBOL;
        let name = || format!("symbol {index}");
        if (SymbolView { value: 0, ..old }) != (SymbolView { value: 0, ..new }) {
            let place = format!("the fields of {}", name());
            ledger.findings.differs(Difference::new(
                Check::Symbols,
                Some(offset as u64),
                place,
                "the same",
                "others",
            ));
            continue;
        }
        let (value, new_value) = (Address(old.value), NewAddress(new.value));
        let is_text = usize::from(old.section) == number && pair.is_text(value);
        let follows = pair.follows(value, new_value);
        let is_unchanged = new.value == old.value;
        let is_right = match old.kind {
            // A function without a name is the end of one: its value is the size.
            FUNCTION if old.name_is_empty(pair.old) => is_unchanged,
            // Linkers write an address or a size.
            END => is_text && follows || is_unchanged,
            _ if is_text && (old.is_stab() || old.is_in(number)) => follows,
            _ => is_unchanged,
        };
        if !is_right {
            let place = format!("the value of {}", name());
            ledger.findings.differs(Difference::new(
                Check::Symbols,
                Some(offset as u64 + 8),
                place,
                pair.expected(value),
                format!("{:#x}", new.value),
            ));
        }
    }
    if old_table.len() != new_table.len() {
        let (old, new) = (old_table.len() as u64, new_table.len() as u64);
        ledger.findings.expect(Check::Symbols, position as u64, "the size of the symbol table", old, new);
    }
    ledger.findings.checked(Check::Symbols, "symbols", count);
}

impl SymbolView {
    fn name_is_empty(&self, image: &MachView<'_>) -> bool {
        let (_, strings) = image.part(Part::Strings);
        strings.get(self.name as usize).is_none_or(|&first| first == 0)
    }
}

/// `LC_FUNCTION_STARTS`, in file order.
///
/// # Errors
/// No terminator, or bytes other than zero after it.
pub(super) fn function_starts(image: &MachView<'_>) -> Result<Vec<u64>> {
    let (offset, bytes) = image.part(Part::Starts);
    let broken = |at: usize| Error::malformed((offset + at) as u64, "the function starts are damaged");
    let mut starts = Vec::new();
    let (mut position, mut address) = (0, image.base());
    while position < bytes.len() {
        let at = position;
        let distance = read_uleb128(bytes, &mut position).ok_or_else(|| broken(at))?;
        if distance == 0 {
            // The terminator is one byte.
            let rest = &bytes[at..];
            return match rest.iter().all(|&byte| byte == 0) {
                true => Ok(starts),
                false => Err(broken(position)),
            };
        }
        // Linkers write no superfluous bytes; a terminator read as the last byte of a number would be missed.
        if bytes[position - 1] == 0 {
            return Err(broken(at));
        }
        address = address.checked_add(distance).ok_or_else(|| broken(position))?;
        starts.push(address);
    }
    match bytes.is_empty() {
        true => Ok(starts),
        false => Err(broken(bytes.len())),
    }
}

/// Where `start` of the old image is now; the largest number, which no table states, for padding that is no longer there.
fn new_start(pair: MachPair<'_>, start: u64) -> u64 {
    pair.mapped(Address(start)).map_or(u64::MAX, |start| start.0)
}

/// The function starts are those of the old image, moved and sorted.
pub(super) fn check_starts(pair: MachPair<'_>, ledger: &mut Ledger<'_>) -> Result<()> {
    let mut expected: Vec<u64> =
        function_starts(pair.old)?.into_iter().map(|start| new_start(pair, start)).collect();
    expected.sort_unstable();
    let found = function_starts(pair.new)?;
    let (offset, _) = pair.new.part(Part::Starts);
    ledger.findings.expect(
        Check::FunctionStarts,
        offset as u64,
        "the number of function starts",
        expected.len() as u64,
        found.len() as u64,
    );
    for (expected, found) in expected.iter().zip(&found) {
        ledger.findings.expect(Check::FunctionStarts, offset as u64, "a function start", *expected, *found);
    }
    ledger.findings.checked(Check::FunctionStarts, "starts", found.len());
    Ok(())
}

/// Ranges of data in code: start as an address, length, kind.
pub(super) fn data_in_code(image: &MachView<'_>) -> Vec<(u64, u16, u16)> {
    let (_, bytes) = image.part(Part::DataInCode);
    let entry = |entry: &[u8]| {
        let address = image.base().wrapping_add(u64::from(u32_at(entry, 0)?));
        Some((address, u16_at(entry, 4)?, u16_at(entry, 6)?))
    };
    bytes.chunks_exact(8).filter_map(entry).collect()
}

/// The ranges of data in code are those of the old image, moved and sorted.
pub(super) fn check_data_in_code(pair: MachPair<'_>, ledger: &mut Ledger<'_>) {
    let mut expected: Vec<_> = data_in_code(pair.old)
        .into_iter()
        .map(|(start, length, kind)| (new_start(pair, start), length, kind))
        .collect();
    let (was_sorted, found) = (expected.is_sorted(), data_in_code(pair.new));
    expected.sort_unstable();
    let mut sorted = found.clone();
    sorted.sort_unstable();
    if expected != sorted || was_sorted && !found.is_sorted() {
        let (offset, _) = pair.new.part(Part::DataInCode);
        ledger.findings.differs(Difference::new(
            Check::DataInCode,
            Some(offset as u64),
            "the ranges of data in code",
            "those of the old image at their new places, sorted",
            "others",
        ));
    }
    ledger.findings.checked(Check::DataInCode, "ranges", found.len());
}

/// The file position of the entry point in its load command, and the entry point.
pub(super) fn entry_point(image: &MachView<'_>) -> Option<(usize, u64)> {
    let (offset, bytes) = image.command(MAIN)?;
    Some((offset + 8, image.base().wrapping_add(u64_at(bytes, 8)?)))
}

/// The entry point follows the map.
pub(super) fn check_entry(pair: MachPair<'_>, ledger: &mut Ledger<'_>) {
    if let (Some((_, old)), Some((offset, new))) = (entry_point(pair.old), entry_point(pair.new)) {
        ledger.follows(pair, Check::LoaderPointers, offset, "the entry point", Address(old), NewAddress(new));
        ledger.claims.add(offset as u64, 8);
    }
}

/// Sections of image offsets of initialisers.
fn initialiser_offsets<'a, 'data>(
    image: &'a MachView<'data>,
) -> impl Iterator<Item = &'a SectionView<'data>> {
    const INITIALISER_OFFSETS: u32 = 0x16;
    image.sections.iter().filter(|section| section.kind() == INITIALISER_OFFSETS)
}

/// Places and addresses of all initialisers that are listed by their offset.
pub(super) fn initialisers(image: &MachView<'_>) -> Vec<(usize, u64)> {
    initialiser_offsets(image)
        .flat_map(|section| {
            let words = section.bytes.chunks_exact(4).enumerate();
            words.filter_map(|(index, word)| {
                let address = image.base().wrapping_add(u64::from(u32_at(word, 0)?));
                Some((section.offset as usize + index * 4, address))
            })
        })
        .collect()
}

/// Offsets of initialisers follow the map.
pub(super) fn check_initialisers(pair: MachPair<'_>, ledger: &mut Ledger<'_>) {
    let (old, new) = (initialisers(pair.old), initialisers(pair.new));
    for ((_, old), (offset, new)) in old.iter().zip(&new) {
        let (old, new) = (Address(*old), NewAddress(*new));
        ledger.follows(pair, Check::LoaderPointers, *offset, "the offset of an initialiser", old, new);
        ledger.claims.add(*offset as u64, 4);
    }
    ledger.findings.checked(Check::LoaderPointers, "initialisers", new.len());
}
