//! Notes and links to other files: probe addresses follow the map and identities may change, but nothing else may.

use goblin::elf::section_header::SHT_NOTE;

use super::pair::{ImagePair, Ledger};
use crate::bytes::{range, u32_at, u64_at};
use crate::elf::view::SectionView;
use crate::remark::Remark;
use crate::report::Check;
use reorder_base::address::{Address, FileOffset, NewAddress};

/// `NT_GNU_BUILD_ID`.
const BUILD_ID: u32 = 3;
/// `NT_STAPSDT`.
const PROBE: u32 = 3;

/// Checks the notes and the debug link.
pub(crate) fn check_notes(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    let mut count = 0;
    for section in &pair.old.sections {
        if section.kind == SHT_NOTE {
            count += check_section(pair, section, ledger);
        }
    }
    check_debug_link(pair, ledger);
    ledger.findings.checked(Check::Notes, "notes", count);
}

fn check_section(pair: ImagePair<'_>, section: &SectionView<'_>, ledger: &mut Ledger<'_>) -> usize {
    let mut position = 0usize;
    let mut count = 0;
    while let Some(note) = note_at(section.bytes, position) {
        count += 1;
        let offset = section.offset + note.description as u64;
        match (note.name, note.kind) {
            (b"GNU\0", BUILD_ID) => {
                let size = note.size as u64;
                if range(pair.old.bytes, offset, size) != range(pair.new.bytes, offset, size) {
                    ledger.claims.add(offset, size);
                    ledger.findings.remark(Remark::BuildIdChanged);
                }
            }
            (b"stapsdt\0", PROBE) => {
                let at = offset as usize;
                if let (Some(before), Some(after)) = (u64_at(pair.old.bytes, at), u64_at(pair.new.bytes, at))
                {
                    ledger.claims.add(offset, 8);
                    ledger.expect_address(
                        Check::Notes,
                        FileOffset(offset),
                        "the address of a probe",
                        pair.mapped(Address(before)),
                        NewAddress(after),
                    );
                }
            }
            _ => {}
        }
        position = note.next;
    }
    count
}

/// One note; positions in its section.
struct Note<'data> {
    name: &'data [u8],
    kind: u32,
    description: usize,
    size: usize,
    next: usize,
}

fn note_at(bytes: &[u8], position: usize) -> Option<Note<'_>> {
    let name_size = u32_at(bytes, position)? as usize;
    let size = u32_at(bytes, position + 4)? as usize;
    let kind = u32_at(bytes, position + 8)?;
    let name_at = position + 12;
    let name = bytes.get(name_at..name_at.checked_add(name_size)?)?;
    // Notes of both names that matter are padded to four bytes, regardless of the section's alignment.
    let description = name_at.checked_add(name_size.checked_next_multiple_of(4)?)?;
    bytes.get(description..description.checked_add(size)?)?;
    let next = description.checked_add(size.checked_next_multiple_of(4)?)?;
    Some(Note { name, kind, description, size, next })
}

/// The checksum of the debug file may change, since that file no longer matches; its name may not.
fn check_debug_link(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    const CHECKSUM: u64 = 4;
    let Some(section) = pair.old.section(b".gnu_debuglink") else { return };
    let Some(within) = (section.bytes.len() as u64).checked_sub(CHECKSUM) else { return };
    let offset = section.offset + within;
    if range(pair.old.bytes, offset, CHECKSUM) != range(pair.new.bytes, offset, CHECKSUM) {
        ledger.claims.add(offset, CHECKSUM);
        ledger.findings.remark(Remark::DebugLinkChanged);
    }
}
