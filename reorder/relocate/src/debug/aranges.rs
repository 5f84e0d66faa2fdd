//! `.debug_aranges` and `.gdb_index`: which unit owns which addresses.
//! Sources: DWARF 5, section 6.1.2; the GDB manual, "Index Section Format".

use gimli::{LittleEndian, Reader};

use super::patch::{close_unit, open_unit};
use super::pieces::Pieces;
use super::sections::{DebugSection, Slice, cannot_update};
use reorder_base::error::Result;
use reorder_base::little_endian::u32_at;

/// Rewrites `.debug_aranges`.
///
/// # Errors
/// A damaged section; R10 for segmented addresses.
pub fn move_aranges(section: &DebugSection<'_>, pieces: &Pieces) -> Result<Vec<u8>> {
    let whole = Slice::new(&section.bytes, LittleEndian);
    let mut rest = whole;
    let mut output = Vec::with_capacity(section.bytes.len());
    while !rest.is_empty() {
        let start = rest.offset_from(whole);
        move_set(&mut rest, pieces, &mut output).map_err(|error| section.damaged(start, error))?;
    }
    Ok(output)
}

fn move_set(rest: &mut Slice<'_>, pieces: &Pieces, output: &mut Vec<u8>) -> gimli::Result<()> {
    let start = output.len();
    let (length, format) = rest.read_initial_length()?;
    let mut set = rest.split(length)?;
    let length_at = open_unit(output, format);
    let mut header = set.split(usize::from(2 + format.word_size()))?;
    output.extend_from_slice(header.slice());
    if header.read_u16()? > 3 {
        return Err(gimli::Error::UnknownVersion(0));
    }
    let (address_size, segment_size) = (set.read_u8()?, set.read_u8()?);
    if (address_size, segment_size) != (8, 0) {
        return Err(gimli::Error::UnsupportedAddressSize(address_size));
    }
    output.extend_from_slice(&[address_size, segment_size]);
    // Pairs are aligned to their size from the start of the set.
    let padding = (output.len() - start).next_multiple_of(16) - (output.len() - start);
    output.resize(output.len() + padding, 0);
    set.skip(padding.min(set.len()))?;
    while set.len() >= 16 {
        let (address, size) = (set.read_u64()?, set.read_u64()?);
        if (address, size) == (0, 0) {
            continue;
        }
        for (from, size) in moved(address, size, pieces) {
            output.extend_from_slice(&from.to_le_bytes());
            output.extend_from_slice(&size.to_le_bytes());
        }
    }
    output.extend_from_slice(&[0; 16]);
    close_unit(output, format, length_at);
    Ok(())
}

fn moved(address: u64, size: u64, pieces: &Pieces) -> Vec<(u64, u64)> {
    match address.checked_add(size) {
        Some(end) if pieces.is_code(address) => {
            let parts = pieces.split(address, end);
            parts.into_iter().map(|(from, to)| (from.0, to.0.wrapping_sub(from.0))).collect()
        }
        _ => vec![(address, size)],
    }
}

/// Bytes of an entry of the address area: two addresses and a unit.
const AREA_ENTRY: usize = 20;

/// Rewrites `.gdb_index`: the address area changes its size, so all that follows it moves.
///
/// # Errors
/// A damaged index; R10 for an unknown version.
pub fn move_gdb_index(section: &DebugSection<'_>, pieces: &Pieces) -> Result<Vec<u8>> {
    let bytes = section.bytes.as_ref();
    let word = |at: usize| u32_at(bytes, at).ok_or_else(|| section.damaged(at, "the header is cut off"));
    let version = word(0)?;
    if !(4..=9).contains(&version) {
        return Err(cannot_update(format!(".gdb_index has the unknown version {version}")).into());
    }
    // Units, type units, addresses, symbols, from version 9 on the shortcuts, constants.
    let fields = if version >= 9 { 6 } else { 5 };
    let (area, symbols) = (word(12)? as usize, word(16)? as usize);
    let entries = bytes
        .get(area..symbols)
        .filter(|entries| entries.len().is_multiple_of(AREA_ENTRY))
        .ok_or_else(|| section.damaged(12, "the address area is damaged"))?;
    let mut rows: Vec<(u64, u64, [u8; 4])> = Vec::with_capacity(entries.len() / AREA_ENTRY);
    let mut rest = Slice::new(entries, LittleEndian);
    while !rest.is_empty() {
        let row = rest.read_u64().and_then(|low| Ok((low, rest.read_u64()?, rest.read_u32()?)));
        let (low, high, unit) = row.map_err(|error| section.damaged(area, error))?;
        let parts = moved(low, high.wrapping_sub(low), pieces).into_iter();
        rows.extend(parts.map(|(from, size)| (from, from.wrapping_add(size), unit.to_le_bytes())));
    }
    let mut output = bytes.get(..area).unwrap_or_default().to_vec();
    for (low, high, unit) in &rows {
        output.extend_from_slice(&low.to_le_bytes());
        output.extend_from_slice(&high.to_le_bytes());
        output.extend_from_slice(unit);
    }
    let new_symbols = output.len();
    output.extend_from_slice(bytes.get(symbols..).unwrap_or_default());
    for field in 3..fields {
        let at = 4 + 4 * field;
        let place =
            (word(at)? as usize).checked_sub(symbols).and_then(|within| within.checked_add(new_symbols));
        let place = place.and_then(|place| u32::try_from(place).ok());
        let (Some(place), Some(target)) = (place, output.get_mut(at..at + 4)) else {
            return Err(section.damaged(at, "a part of the index lies before the addresses"));
        };
        target.copy_from_slice(&place.to_le_bytes());
    }
    Ok(output)
}
