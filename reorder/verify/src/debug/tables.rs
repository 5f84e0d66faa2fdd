//! Compares tables of addresses outside of units: address ranges of units, frames, numbered addresses, macros.

use std::collections::{BTreeMap, BTreeSet};

use goblin::elf::section_header::SHT_SYMTAB;

use gimli::{BaseAddresses, CieOrFde, DebugAranges, DebugFrame, LittleEndian, UnwindSection};

use super::coverage::{Range, distance, same};
use super::scene::Scene;
use super::view::DebugView;
use crate::bytes::{array, u32_at, u64_at};
use reorder_base::address::{Address, NewAddress};

/// What differs, or how much was compared.
pub(super) type Judgement = std::result::Result<usize, String>;

fn broken(error: gimli::Error) -> String {
    error.to_string()
}

/// `.debug_aranges`: each set belongs to the same unit and covers the same.
pub(super) fn compare_aranges(pair: Scene<'_>, old: &DebugView<'_>, new: &DebugView<'_>) -> Judgement {
    let sets = |view: &DebugView<'_>| {
        let section = DebugAranges::new(view.bytes(".debug_aranges"), LittleEndian);
        let mut headers = section.headers();
        let mut sets: Vec<(usize, Vec<Range>)> = Vec::new();
        while let Some(header) = headers.next().map_err(broken)? {
            let mut entries = header.entries();
            let mut ranges = Vec::new();
            while let Some(entry) = entries.next_raw().map_err(broken)? {
                ranges.push((entry.address(), entry.address().wrapping_add(entry.length())));
            }
            sets.push((header.debug_info_offset().0, ranges));
        }
        Ok::<_, String>(sets)
    };
    let (before, after) = (sets(old)?, sets(new)?);
    if before.len() != after.len() {
        return Err("the number of sets".to_owned());
    }
    for (before, after) in before.iter().zip(&after) {
        if before.0 != after.0 || !same(pair, &before.1, &after.1) {
            return Err(format!("the addresses of the unit at {:#x}", before.0));
        }
    }
    Ok(before.len())
}

/// `.gdb_index`: the same units and names, the same addresses for each unit.
pub(super) fn compare_gdb_index(pair: Scene<'_>, old: &[u8], new: &[u8]) -> Judgement {
    let cut = || "the header".to_owned();
    let parts = |bytes: &[u8]| {
        let fields = if u32_at(bytes, 0)? >= 9 { 6 } else { 5 };
        let starts: Option<Vec<usize>> =
            (0..fields).map(|field| u32_at(bytes, 4 + 4 * field).map(|start| start as usize)).collect();
        let mut starts = starts?;
        starts.push(bytes.len());
        let parts: Option<Vec<Vec<u8>>> =
            starts.windows(2).map(|pair| bytes.get(pair[0]..pair[1]).map(<[u8]>::to_vec)).collect();
        parts
    };
    let (before, after) = (parts(old).ok_or_else(cut)?, parts(new).ok_or_else(cut)?);
    /// Position of the addresses among the parts.
    const AREA: usize = 2;
    if before.len() != after.len() || old.get(..4) != new.get(..4) {
        return Err(cut());
    }
    let others = |at: &usize| *at != AREA;
    if (0..before.len()).filter(others).any(|at| before[at] != after[at]) {
        return Err("units, names or constants".to_owned());
    }
    let by_unit = |area: &[u8]| {
        let mut units: BTreeMap<u32, Vec<Range>> = BTreeMap::new();
        for row in area.chunks_exact(20) {
            let row = (u32_at(row, 16), u64_at(row, 0), u64_at(row, 8));
            if let (Some(unit), Some(low), Some(high)) = row {
                units.entry(unit).or_default().push((low, high));
            }
        }
        units
    };
    let (before, after) = (by_unit(&before[AREA]), by_unit(&after[AREA]));
    let differing = before
        .iter()
        .find(|(unit, ranges)| !same(pair, ranges, after.get(unit).map_or(&[][..], Vec::as_slice)));
    match differing {
        Some((unit, _)) => Err(format!("the addresses of unit {unit}")),
        None if after.keys().any(|unit| !before.contains_key(unit)) => Err("a unit without code".to_owned()),
        None => Ok(before.values().map(Vec::len).sum()),
    }
}

/// `.debug_frame`: the same entries except the addresses covered, which moved by one distance. No instruction states an
/// address.
pub(super) fn compare_frames(pair: Scene<'_>, old: &[u8], new: &[u8]) -> Judgement {
    let moved =
        |address: u64| pair.moves.containing(Address(address)).is_some_and(|found| found.delta() != 0);
    let entries = |bytes: &[u8], is_old: bool| {
        let mut section = DebugFrame::new(bytes, LittleEndian);
        section.set_vendor(gimli::Vendor::AArch64);
        let bases = BaseAddresses::default();
        let mut entries = section.entries(&bases);
        let mut found: Vec<(usize, usize, u64, u64)> = Vec::new();
        while let Some(entry) = entries.next().map_err(broken)? {
            match entry {
                CieOrFde::Cie(common) if is_old => states_no_address(common.instructions(&section, &bases))?,
                CieOrFde::Cie(_) => {}
                CieOrFde::Fde(partial) => {
                    let frame = partial.parse(DebugFrame::cie_from_offset).map_err(broken)?;
                    if is_old && moved(frame.initial_address()) {
                        states_no_address(frame.instructions(&section, &bases))?;
                    }
                    found.push((frame.offset(), frame.entry_len(), frame.initial_address(), frame.len()));
                }
            }
        }
        Ok::<_, String>(found)
    };
    let (before, after) = (entries(old, true)?, entries(new, false)?);
    if before.len() != after.len() || old.len() != new.len() {
        return Err("the number of entries".to_owned());
    }
    let mut fields = BTreeSet::new();
    for (before, after) in before.iter().zip(&after) {
        let range = |entry: &(usize, usize, u64, u64)| (entry.2, entry.2.wrapping_add(entry.3));
        let is_same = (before.0, before.1) == (after.0, after.1)
            && pair.leads_to(Address(before.2), NewAddress(after.2))
            && distance(pair, range(before)).is_some()
            && same(pair, &[range(before)], &[range(after)])
            && (before.3 == 0) == (after.3 == 0);
        if !is_same {
            return Err(format!("the entry at {:#x}", before.0));
        }
        // After the length and the position of the common entry: four bytes each, or twelve and eight.
        let header = if array::<4>(old, before.0) == Some([0xff; 4]) { 20 } else { 8 };
        fields.extend([before.0 + header, before.0 + header + 8]);
    }
    match differing_words(old, new, &fields) {
        None => Ok(before.len()),
        Some(at) => Err(format!("the byte at {at:#x}")),
    }
}

fn states_no_address(
    mut instructions: gimli::CallFrameInstructionIter<'_, gimli::EndianSlice<'_, LittleEndian>>,
) -> std::result::Result<(), String> {
    while let Some(instruction) = instructions.next().map_err(broken)? {
        if matches!(instruction, gimli::CallFrameInstruction::SetLoc { .. }) {
            return Err("an address among the instructions of an entry".to_owned());
        }
    }
    Ok(())
}

/// Who names addresses of `.debug_addr` by their number.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// Old positions of those that units name, which are judged with the units.
    pub(super) places: BTreeSet<usize>,
    /// Whether further ones may be named from other files.
    pub(super) is_split: bool,
}

/// `.debug_addr`: each address that no unit names moves with the code at it or with the code before it; where another file
/// may name it, both must give the same address.
pub(super) fn compare_addresses(pair: Scene<'_>, old: &[u8], new: &[u8], named: &Named) -> Judgement {
    if old.len() != new.len() {
        return Err("the size".to_owned());
    }
    let rest = old.len() - old.len() % 8;
    if old.get(rest..) != new.get(rest..) {
        return Err("the end".to_owned());
    }
    for at in (0..rest).step_by(8).filter(|at| !named.places.contains(at)) {
        let (Some(before), Some(after)) = (u64_at(old, at), u64_at(new, at)) else { continue };
        let follows = |reading: Option<Reading>| match reading {
            Some(Reading::Start) => pair.leads_to(Address(before), NewAddress(after)),
            Some(Reading::End) => pair.mapped(Address(before.wrapping_sub(1))).plus(1).0 == after,
            None => before == after,
        };
        let start = has_meaning(pair, before).then_some(Reading::Start);
        let end = super::coverage::is_code(pair, before.wrapping_sub(1))
            && has_meaning(pair, before.wrapping_sub(1));
        let end = end.then_some(Reading::End);
        let is_same = match (start, end) {
            (Some(_), Some(_)) if named.is_split => follows(start) && follows(end),
            (Some(_), Some(_)) => follows(start) || follows(end),
            _ => follows(start.or(end)),
        };
        if !is_same {
            return Err(format!("the address at {at:#x}"));
        }
    }
    Ok(old.len() / 8)
}

/// What an address may mean: the start of something, or its end.
#[derive(Clone, Copy)]
enum Reading {
    Start,
    End,
}

/// Whether the byte at `address` belongs to a function, other code, or data, and not to padding.
fn has_meaning(pair: Scene<'_>, address: u64) -> bool {
    pair.moves.containing(Address(address)).is_some()
        || pair.old.section_at(address).is_some() && !pair.paddings.hold((address, address.saturating_add(1)))
}

/// `.debug_macro`: the same except positions of line programs, which must be those of the units.
pub(super) fn compare_macros(old: &[u8], new: &[u8], lines: &BTreeSet<(usize, usize)>) -> Judgement {
    if old.len() != new.len() {
        return Err("the size".to_owned());
    }
    let mut position = 0;
    while let Some(within) = old[position..].iter().zip(&new[position..]).position(|(old, new)| old != new) {
        let at = position + within;
        // The first differing byte is one of the four of a position.
        let is_position = |start: &usize| {
            let words = u32_at(old, *start).zip(u32_at(new, *start));
            words.is_some_and(|(old, new)| lines.contains(&(old as usize, new as usize)))
        };
        match (at.saturating_sub(3)..=at).find(is_position) {
            Some(start) => position = start + 4,
            None => return Err(format!("the byte at {at:#x}")),
        }
    }
    Ok(lines.len())
}

/// `.gnu_debugdata`: an image of symbols, of which only values may differ, by the map.
pub(super) fn compare_mini(pair: Scene<'_>, old: &[u8], new: &[u8]) -> Judgement {
    let parse = |bytes| goblin::elf::Elf::parse(bytes).map_err(|error| error.to_string());
    let (before, after) = (parse(old)?, parse(new)?);
    if before.syms.len() != after.syms.len() || old.len() != new.len() {
        return Err("the number of symbols".to_owned());
    }
    let table = before.section_headers.iter().find(|header| header.sh_type == SHT_SYMTAB);
    let start = table.map_or(0, |header| header.sh_offset as usize);
    if pair.mapped(Address(before.entry)).0 != after.entry {
        return Err("the entry point".to_owned());
    }
    let mut fields = BTreeSet::from([24]);
    for (index, (before, after)) in before.syms.iter().zip(&after.syms).enumerate() {
        let is_end = || pair.mapped(Address(before.st_value.wrapping_sub(1))).plus(1).0 == after.st_value;
        let is_code = super::coverage::is_code(pair, before.st_value);
        if before.st_value != after.st_value
            && !(is_code && (pair.leads_to(Address(before.st_value), NewAddress(after.st_value)) || is_end()))
        {
            return Err(format!("the value of symbol {index}"));
        }
        if before.is_function()
            && is_code
            && !pair.leads_to(Address(before.st_value), NewAddress(after.st_value))
        {
            return Err(format!("the value of function {index}"));
        }
        fields.insert(start.saturating_add(index * 24 + 8));
    }
    match differing_words(old, new, &fields) {
        None => Ok(before.syms.len()),
        Some(at) => Err(format!("the byte at {at:#x}")),
    }
}

/// The first difference outside of the eight bytes at each of `fields`.
fn differing_words(old: &[u8], new: &[u8], fields: &BTreeSet<usize>) -> Option<usize> {
    old.iter().zip(new).enumerate().filter(|(_, (old, new))| old != new).map(|(at, _)| at).find(|&at| {
        let field = fields.range(..=at).next_back();
        field.is_none_or(|field| at >= field + 8)
    })
}
