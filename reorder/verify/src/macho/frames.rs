//! `__eh_frame`: the same entries at the same places; only their starts follow the map.
//!
//! Source: Linux Standard Base 5.0, "Exception Frames"; DWARF 5, section 6.4.

use super::super::bytes::{displacement_at, read_uleb128, u32_at, u64_at};
use super::super::report::{Check, Difference};
use super::pair::{Ledger, MachPair};
use super::view::{MachView, SectionView};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};

/// One frame description entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameEntry {
    /// Position of the entry in the section, by which compact rows refer to it.
    pub(super) position: usize,
    /// Position of the start's field in the file.
    pub(super) field: usize,
    /// Bytes of that field: 4 or 8.
    pub(super) width: usize,
    /// First address covered.
    pub(super) start: u64,
    /// Bytes covered.
    pub(super) size: u64,
    /// The function's exception table, where the entry names one directly.
    pub(super) exception_table: Option<u64>,
}

/// The properties that a common entry defines for its entries.
#[derive(Clone, Copy, Debug)]
struct Common {
    /// Bytes of the field with the start: 4 or 8.
    width: usize,
    /// The form of the addresses of exception tables.
    tables: Option<u8>,
}

fn section<'a, 'data>(image: &'a MachView<'data>) -> Option<&'a SectionView<'data>> {
    image.section(b"__TEXT", b"__eh_frame").filter(|section| !section.bytes.is_empty())
}

/// All entries, in file order.
///
/// # Errors
/// Damaged entries, and starts that are not distances of 4 or 8 bytes.
pub(super) fn frame_entries(image: &MachView<'_>) -> Result<Vec<FrameEntry>> {
    let Some(section) = section(image) else { return Ok(Vec::new()) };
    let bytes = section.bytes;
    let mut entries = Vec::with_capacity(bytes.len() / 48);
    let mut position = 0;
    let mut known: Option<(usize, Common)> = None;
    while let Some(length) = u32_at(bytes, position) {
        if length == 0 {
            position += 4;
            continue;
        }
        let broken =
            || Error::malformed(section.offset + position as u64, "an entry of __eh_frame is damaged");
        let body = position + 4;
        let end = body.saturating_add(length as usize);
        if length == u32::MAX || end > bytes.len() {
            return Err(broken());
        }
        let parent = u32_at(&bytes[..end], body).ok_or_else(broken)? as usize;
        if parent != 0 {
            let parent = body.checked_sub(parent).ok_or_else(broken)?;
            let common = match known {
                Some((at, common)) if at == parent => common,
                _ => read_common(bytes, parent).ok_or_else(broken)?,
            };
            known = Some((parent, common));
            let entry = read_entry(section, &bytes[..end], position, common).ok_or_else(broken)?;
            entries.push(entry);
        }
        position = end;
    }
    Ok(entries)
}

fn read_entry(
    section: &SectionView<'_>,
    record: &[u8],
    position: usize,
    common: Common,
) -> Option<FrameEntry> {
    let (field, width) = (position + 8, common.width);
    let (distance, size) = match width {
        4 => (displacement_at(record, field)?, u64::from(u32_at(record, field + 4)?)),
        _ => (u64_at(record, field)?, u64_at(record, field + 8)?),
    };
    let start = section.address.wrapping_add(field as u64).wrapping_add(distance);
    let exception_table = common.tables.and_then(|form| table_of(section, record, field + 2 * width, form));
    Some(FrameEntry { position, field: section.offset as usize + field, width, start, size, exception_table })
}

const PC_RELATIVE: u8 = 0x10;

/// The exception table whose address follows the length at `cursor`. A stored zero means none, in any encoding.
fn table_of(section: &SectionView<'_>, record: &[u8], mut cursor: usize, form: u8) -> Option<u64> {
    read_uleb128(record, &mut cursor)?;
    let stored = match form {
        0x1b => displacement_at(record, cursor)?,
        0x10 | 0x14 | 0x1c => u64_at(record, cursor)?,
        _ => return None,
    };
    (stored != 0).then(|| section.address.wrapping_add(cursor as u64).wrapping_add(stored))
}

/// Reads the common entry at `position`.
fn read_common(bytes: &[u8], position: usize) -> Option<Common> {
    let length = u32_at(bytes, position)? as usize;
    let record = bytes.get(..position.checked_add(4)?.checked_add(length)?)?;
    if u32_at(record, position + 4)? != 0 {
        return None;
    }
    let augmentation_at = position + 9;
    let augmentation = record.get(augmentation_at..)?;
    let augmentation = &augmentation[..augmentation.iter().take(16).position(|&byte| byte == 0)?];
    let mut cursor = augmentation_at + augmentation.len() + 1;
    read_uleb128(record, &mut cursor)?;
    read_uleb128(record, &mut cursor)?;
    read_uleb128(record, &mut cursor)?;
    let Some((b'z', letters)) = augmentation.split_first() else { return None };
    read_uleb128(record, &mut cursor)?;
    let (mut width, mut tables) = (None, None);
    for letter in letters {
        match letter {
            b'R' => {
                let encoding = *record.get(cursor)?;
                width = match encoding {
                    _ if encoding & 0xf0 != PC_RELATIVE => return None,
                    0x1b | 0x13 => Some(4),
                    0x10 | 0x14 | 0x1c => Some(8),
                    _ => return None,
                };
                cursor += 1;
            }
            b'L' => {
                tables = Some(*record.get(cursor)?);
                cursor += 1;
            }
            b'P' => {
                let encoding = *record.get(cursor)?;
                cursor += 1 + match encoding & 0x0f {
                    0x03 | 0x0b => 4,
                    0x00 | 0x04 | 0x0c => 8,
                    _ => return None,
                };
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    Some(Common { width: width?, tables })
}

/// Starts follow the map, and an entry covers only code that moved with its start.
///
/// # Errors
/// A damaged section of the new image.
pub(super) fn check_frames(pair: MachPair<'_>, ledger: &mut Ledger<'_>) -> Result<()> {
    let (old, new) = (frame_entries(pair.old)?, frame_entries(pair.new)?);
    for (old, new) in old.iter().zip(&new) {
        if old.field != new.field || old.width != new.width {
            ledger.findings.differs(Difference::new(
                Check::UnwindEntries,
                Some(new.field as u64),
                "an entry of __eh_frame",
                "the same entries at the same places",
                "others",
            ));
            return Ok(());
        }
        let place = "the start of an entry of __eh_frame";
        ledger.follows(
            pair,
            Check::UnwindEntries,
            new.field,
            place,
            Address(old.start),
            NewAddress(new.start),
        );
        let last = old.size.checked_sub(1).filter(|_| pair.is_text(Address(old.start)));
        if let Some(last) = last {
            ledger.follows(
                pair,
                Check::UnwindEntries,
                new.field,
                "the end of an entry of __eh_frame",
                Address(old.start.wrapping_add(last)),
                NewAddress(new.start.wrapping_add(last)),
            );
        }
        if old.start != new.start {
            ledger.claims.add(new.field as u64, new.width as u64);
        }
    }
    ledger.findings.expect(
        Check::UnwindEntries,
        0,
        "the entries of __eh_frame",
        old.len() as u64,
        new.len() as u64,
    );
    ledger.findings.checked(Check::UnwindEntries, "entries of __eh_frame", new.len());
    Ok(())
}
