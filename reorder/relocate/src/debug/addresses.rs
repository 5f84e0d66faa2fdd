//! `.debug_addr`: addresses that units name by number, in place. Source: DWARF 5, section 7.27.

use gimli::{LittleEndian, Reader};

use super::expressions::{AddressUse, Use};
use super::patch::Patch;
use super::pieces::Pieces;
use super::sections::{DebugSection, Slice, cannot_update};
use super::units::UnitUpdate;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::little_endian::u64_at;
use reorder_base::refusal::Refusal;

/// Bytes of an address.
const WIDTH: usize = 8;

/// New values of all addresses, by what the `units` use them for; `is_data` says whether a section other than code holds
/// an address.
///
/// # Errors
/// Places outside the section; R10 when two uses of one place would need different values,
/// or when it is not known what a place is used for and that matters.
pub(crate) fn move_addresses(
    section: &DebugSection<'_>,
    units: &[UnitUpdate],
    pieces: &Pieces,
    is_data: impl Fn(u64) -> bool,
) -> Result<Vec<Patch>> {
    let mut uses: Vec<(usize, Use)> = Vec::new();
    let mut tables: Vec<(usize, bool)> = Vec::new();
    for unit in units {
        let Some(base) = unit.addresses_base else { continue };
        tables.push((base, unit.encoding.version >= 5));
        for AddressUse { index, meaning } in &unit.uses {
            let place = index.checked_mul(WIDTH).and_then(|within| base.checked_add(within));
            let place = place.ok_or_else(|| section.damaged(base, "an index beyond the section"))?;
            uses.push((place, *meaning));
        }
    }
    uses.sort_unstable();
    uses.dedup();
    tables.sort_unstable();
    tables.dedup();
    let mut patches = Vec::new();
    let is_split = units.iter().any(|unit| unit.is_split);
    for (at, &(base, has_length)) in tables.iter().enumerate() {
        let next = tables.get(at + 1).map_or(section.bytes.len(), |next| next.0);
        let end = if has_length { table_end(section, base)? } else { next };
        if end > section.bytes.len() || end > next {
            return Err(section.damaged(base, "a table reaches into the next one"));
        }
        let mut position = base;
        while let Some(value) = u64_at(&section.bytes, position).filter(|_| position + WIDTH <= end) {
            let new = match named_value(&uses, position, value, pieces)? {
                Some(new) => new,
                None if is_split => {
                    pieces.either(value, is_data(value)).ok_or_else(|| ambiguous(position, value))?
                }
                None => pieces.start(value),
            };
            if new != value {
                patches.push(Patch { at: position, width: WIDTH as u8, value: new });
            }
            position += WIDTH;
        }
    }
    Ok(patches)
}

/// Where the table ends whose first address is at `base`: its header, of one of two lengths, is before it.
fn table_end(section: &DebugSection<'_>, base: usize) -> Result<usize> {
    let whole = Slice::new(&section.bytes, LittleEndian);
    for header in [8, 16] {
        let Some(start) = base.checked_sub(header) else { continue };
        let mut rest = whole;
        let found = rest.skip(start).and_then(|()| {
            let (length, format) = rest.read_initial_length()?;
            let size = usize::from(format.initial_length_size()) + 4;
            Ok((size == header).then(|| base.checked_add(length.saturating_sub(4))))
        });
        if let Ok(Some(Some(end))) = found
            && whole.slice().get(base - 4..base - 2) == Some(&[5, 0][..])
        {
            return Ok(end);
        }
    }
    Err(section.damaged(base, "no header before the table"))
}

/// An address that only the files of split units name may be the start of a function, or the return address of the last
/// call of the function before.
fn ambiguous(place: usize, value: u64) -> Refusal {
    let reason = format!(
        "the address at {place:#x} of .debug_addr, which only files of split units name, stands between two functions \
         that went apart"
    );
    cannot_update(reason).at(Address(value))
}

/// The new value as the units of this file name it, if they do.
fn named_value(uses: &[(usize, Use)], place: usize, value: u64, pieces: &Pieces) -> Result<Option<u64>> {
    let first = uses.partition_point(|(at, _)| *at < place);
    let meanings = uses[first..].iter().take_while(|(at, _)| *at == place);
    let mut new = None;
    for (_, meaning) in meanings {
        let wanted = match meaning {
            Use::Start => pieces.start(value),
            Use::End => pieces.end(value),
            Use::Number => value,
        };
        if new.is_some_and(|other| other != wanted) {
            let reason = format!("the address at {place:#x} of .debug_addr is used in two ways");
            return Err(cannot_update(reason).at(Address(value)).into());
        }
        new = Some(wanted);
    }
    Ok(new)
}
