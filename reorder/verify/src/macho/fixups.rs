//! Pointers that the loader adjusts: the same slots, with values that follow the map.
//!
//! Sources: `mach-o/loader.h` (opcodes of `LC_DYLD_INFO`) and `mach-o/fixup-chains.h` of Apple's dyld.

use super::super::bytes::{read_uleb128, u16_at, u32_at, u64_at};
use super::super::report::{Check, Difference};
use super::pair::{Ledger, MachPair};
use super::view::{MachView, Part};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};

/// One pointer into the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Its position in the file.
    pub(super) offset: usize,
    /// The address that it holds.
    pub(super) target: u64,
    /// All bits except those of the address.
    pub(super) rest: u64,
}

/// Calls `found` with every slot of the image that holds an address of the image, in the order of the tables.
///
/// # Errors
/// Damaged tables and slots outside of segments.
pub(super) fn for_each_slot(image: &MachView<'_>, mut found: impl FnMut(Slot)) -> Result<()> {
    rebases(image, &mut found)?;
    chains(image, &mut found)
}

/// The slots that opcodes list.
fn rebases(image: &MachView<'_>, found: &mut impl FnMut(Slot)) -> Result<()> {
    const POINTER: u8 = 1;
    let (offset, bytes) = image.part(Part::Rebase);
    let broken =
        |at: usize, what: &str| Error::malformed((offset + at) as u64, format!("rebase opcodes: {what}"));
    let (mut position, mut address, mut kind) = (0, 0u64, POINTER);
    // Slots do not overlap, so there are no more of them than the file has room for.
    let mut budget = image.bytes.len() / 8 + 1;
    while position < bytes.len() {
        let at = position;
        let (opcode, immediate) = (bytes[at] >> 4, bytes[at] & 0xf);
        position += 1;
        let number = |position: &mut usize| {
            read_uleb128(bytes, position).ok_or_else(|| broken(at, "a damaged number"))
        };
        let (count, skip) = match opcode {
            0 => break,
            1 => {
                kind = immediate;
                continue;
            }
            2 => {
                let segment = image.segments.get(usize::from(immediate));
                let start = segment.ok_or_else(|| broken(at, "an unknown segment"))?.address;
                address = start.wrapping_add(number(&mut position)?);
                continue;
            }
            3 => {
                address = address.wrapping_add(number(&mut position)?);
                continue;
            }
            4 => {
                address = address.wrapping_add(u64::from(immediate) * 8);
                continue;
            }
            5 => (u64::from(immediate), 0),
            6 => (number(&mut position)?, 0),
            7 => (1, number(&mut position)?),
            8 => (number(&mut position)?, number(&mut position)?),
            _ => return Err(broken(at, "an unknown opcode")),
        };
        if kind != POINTER {
            return Err(broken(at, "a slot that is no pointer"));
        }
        for _ in 0..count {
            budget =
                budget.checked_sub(1).ok_or_else(|| broken(at, "more slots than the file has room for"))?;
            let slot =
                image.offset_of(address, 8).ok_or_else(|| broken(at, "a slot outside of all segments"))?;
            let target = u64_at(image.bytes, slot).unwrap_or(0);
            found(Slot { offset: slot, target, rest: 0 });
            address = address.wrapping_add(8).wrapping_add(skip);
        }
    }
    Ok(())
}

/// The slots that chains in the data link.
fn chains(image: &MachView<'_>, found: &mut impl FnMut(Slot)) -> Result<()> {
    const ADDRESS: u16 = 2;
    const IMAGE_OFFSET: u16 = 6;
    const NONE: u16 = 0xffff;
    const SEVERAL: u16 = 0x8000;
    const TARGET: u64 = (1 << 36) - 1;
    let (offset, bytes) = image.part(Part::Fixups);
    if bytes.is_empty() {
        return Ok(());
    }
    let broken =
        |at: usize, what: &str| Error::malformed((offset + at) as u64, format!("chained fixups: {what}"));
    let word = |at: usize| u32_at(bytes, at).map(|word| word as usize).ok_or_else(|| broken(at, "cut off"));
    let short = |at: usize| u16_at(bytes, at).ok_or_else(|| broken(at, "cut off"));
    if word(0)? != 0 {
        return Err(broken(0, "an unknown version"));
    }
    let starts = word(4)?;
    let mut budget = image.bytes.len() / 4 + 1;
    let segments = word(starts)?.min(image.segments.len());
    for index in 0..segments {
        let relative = word(starts + 4 + index * 4)?;
        if relative == 0 {
            continue;
        }
        let at = starts.saturating_add(relative);
        let (page_size, format) = (u64::from(short(at + 4)?), short(at + 6)?);
        if format != ADDRESS && format != IMAGE_OFFSET {
            return Err(broken(at, "an unknown format of pointers"));
        }
        let distance = u64_at(bytes, at + 8).ok_or_else(|| broken(at, "cut off"))?;
        let pages = short(at + 20)?;
        for page in 0..u64::from(pages) {
            let start = short(at + 22 + page as usize * 2)?;
            if start == NONE {
                continue;
            }
            if start & SEVERAL != 0 {
                return Err(broken(at, "a page with several chains"));
            }
            let mut address = image
                .base()
                .wrapping_add(distance)
                .wrapping_add(page.wrapping_mul(page_size))
                .wrapping_add(u64::from(start));
            loop {
                budget = budget.checked_sub(1).ok_or_else(|| broken(at, "a chain without an end"))?;
                let slot = image
                    .offset_of(address, 8)
                    .ok_or_else(|| broken(at, "a slot outside of all segments"))?;
                let value = u64_at(image.bytes, slot).unwrap_or(0);
                let is_bind = value >> 63 != 0;
                if !is_bind {
                    let base = if format == IMAGE_OFFSET { image.base() } else { 0 };
                    let target = (value & TARGET).wrapping_add(base);
                    found(Slot { offset: slot, target, rest: value & !TARGET });
                }
                let next = value >> 51 & 0xfff;
                if next == 0 {
                    break;
                }
                address = address.wrapping_add(next * 4);
            }
        }
    }
    Ok(())
}

/// Every slot follows the map; returns the file positions of all slots, ascending.
///
/// # Errors
/// Damaged tables of the new image.
pub(super) fn check_slots(pair: MachPair<'_>, ledger: &mut Ledger<'_>) -> Result<Vec<u32>> {
    let mut old = Vec::new();
    for_each_slot(pair.old, |slot| old.push(slot))?;
    let mut slots = Vec::with_capacity(old.len());
    let mut at = 0;
    for_each_slot(pair.new, |new| {
        let expected = old.get(at);
        at += 1;
        slots.push(new.offset as u32);
        match expected {
            Some(old) if old.offset == new.offset && old.rest == new.rest => {
                let (address, found) = (Address(old.target), NewAddress(new.target));
                ledger.follows(pair, Check::LoaderPointers, new.offset, "a pointer", address, found);
                if old.target != new.target {
                    ledger.claims.add(new.offset as u64, 8);
                }
            }
            _ => ledger.findings.differs(Difference::new(
                Check::LoaderPointers,
                Some(new.offset as u64),
                "a pointer that the loader adjusts",
                "the same slots in the same order",
                "another slot",
            )),
        }
    })?;
    ledger.findings.expect(Check::LoaderPointers, 0, "the number of pointers", old.len() as u64, at as u64);
    ledger.findings.checked(Check::LoaderPointers, "pointers", at);
    slots.sort_unstable();
    slots.dedup();
    Ok(slots)
}
