//! Arbitrary bytes in place of sections, and line programs whose rows must follow the map.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::collections::BTreeMap;
use std::ops::Range;

use gimli::{DebugLine, DebugLineOffset, LittleEndian};
use proptest::collection::vec;
use proptest::prelude::*;

use super::aranges::{move_aranges, move_gdb_index};
use super::frames::move_frames;
use super::lines::move_lines;
use super::mini::move_mini;
use super::pieces::Pieces;
use super::sections::DebugSection;
use crate::address_map::{AddressMap, Move};
use reorder_base::address::{Address, NewAddress};

fn section(bytes: &[u8]) -> DebugSection<'_> {
    DebugSection::detached(".debug_line", bytes)
}

const CODE: Range<Address> = Address(0x100)..Address(0x300);

/// f 0x110..0x120 goes to 0x240, g 0x120..0x130 to 0x210, h 0x130..0x140 to 0x220; the rest stays.
fn pieces() -> Pieces {
    let moved = |old, new| Move { old: Address(old), new: NewAddress(new), size: 0x10 };
    let map = AddressMap::new([moved(0x110, 0x240), moved(0x120, 0x210), moved(0x130, 0x220)]).unwrap();
    Pieces::new(&map, vec![CODE], &[])
}

/// A unit of DWARF 4 with this program.
fn line_section(program: &[u8]) -> Vec<u8> {
    let mut header = vec![1, 1, 1, 0xfb, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0];
    header.extend_from_slice(b"a.c\0\0\0\0\0");
    let mut bytes = ((header.len() + program.len() + 6) as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&[4, 0]);
    bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(program);
    bytes
}

/// One sequence: at each address a line.
fn program(rows: &[(u64, u8)], end: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let set = |bytes: &mut Vec<u8>, address: u64| {
        bytes.extend_from_slice(&[0, 9, 2]);
        bytes.extend_from_slice(&address.to_le_bytes());
    };
    for (address, line) in rows {
        set(&mut bytes, *address);
        // advance_line by one unsigned byte less than 64, copy.
        bytes.extend_from_slice(&[3, line % 64, 1]);
    }
    set(&mut bytes, end);
    bytes.extend_from_slice(&[0, 1, 1]);
    bytes
}

/// For each address the line that holds there.
fn lines(bytes: &[u8]) -> BTreeMap<u64, u64> {
    let section = DebugLine::new(bytes, LittleEndian);
    let mut rows = section.program(DebugLineOffset(0), 8, None, None).unwrap().rows();
    let mut lines = BTreeMap::new();
    let mut last: Option<(u64, u64)> = None;
    while let Some((_, row)) = rows.next_row().unwrap() {
        if let Some((from, line)) = last {
            lines.extend((from..row.address()).map(|address| (address, line)));
        }
        let line = row.line().map_or(0, u64::from);
        last = (!row.end_sequence()).then_some((row.address(), line));
    }
    lines
}

proptest! {
    #[test]
    fn lines_follow_the_map(mut rows in vec((0x100_u64..0x300, any::<u8>()), 1..20), end in 0x300_u64..0x310) {
        rows.sort_unstable_by_key(|row| row.0);
        let old = line_section(&program(&rows, end));
        let pieces = pieces();
        let new = move_lines(&section(&old), &pieces).unwrap();
        let mut expected = BTreeMap::new();
        for (address, line) in lines(&old) {
            if pieces.at(address).is_some() {
                expected.insert(pieces.start(address), line);
            }
        }
        // After the code everything stays.
        let found = lines(&new.bytes);
        let inside = |map: BTreeMap<u64, u64>| map.into_iter().filter(|(at, _)| *at < 0x300).collect::<Vec<_>>();
        prop_assert_eq!(inside(found), inside(expected));
    }

    #[test]
    fn any_bytes_are_a_section_or_an_error(bytes in vec(any::<u8>(), 0..200), opcodes in vec(any::<u8>(), 0..100)) {
        let pieces = pieces();
        let arbitrary = section(&bytes);
        let _ = move_lines(&arbitrary, &pieces);
        let _ = move_aranges(&arbitrary, &pieces);
        let _ = move_gdb_index(&arbitrary, &pieces);
        let _ = move_frames(&arbitrary, &pieces);
        let _ = move_mini(&arbitrary, &pieces);
        let _ = move_lines(&section(&line_section(&opcodes)), &pieces);
    }
}

/// Each header could name the same bytes as symbols, so that an image makes 65,535 times as many as it holds.
#[test]
fn symbols_inside_are_one_table() {
    let mut image = vec![0; 64];
    image[40] = 64;
    let mut header = [0; 64];
    header[4] = 2;
    for tables in 1..=2 {
        image[60] = tables;
        image.extend_from_slice(&header);
        let moved = move_mini(&section(&image), &pieces());
        assert_eq!(moved.is_ok(), tables == 1);
        assert!(moved.map_or_else(|error| error.to_string().contains("more than one table"), |_| true));
    }
}
