//! Logs of the basic mode (`xray_basic_logging.cpp`): records of 32 bytes, in order for each thread.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 2 | 0 a call, 1 the value of an argument |
//! | 3 | 1 | 0 entry, 1 exit, 2 exit by a tail call, 3 entry with argument |
//! | 4 | 4 | function |
//! | 8 | 8 | clock |
//! | 16 | 4 | thread |
//! | 20 | 4 | process, from version 3 on |

use super::header::{Header, LENGTH};
use super::records::{Record, Records};
use crate::Note;
use crate::cursor::Cursor;
use reorder_base::error::Result;

pub(super) const COMMAND: &str = "clang -fxray-instrument -fxray-instruction-threshold=1 …, then XRAY_OPTIONS=\
     \"patch_premain=true xray_mode=xray-basic\" XRAY_BASIC_OPTIONS=\"func_duration_threshold_us=0 \
     max_stack_depth=1024\" PROGRAM";

const RECORD: usize = 32;
const ARGUMENT: u16 = 1;

/// Whether the first record is a call. A log without records is accepted: there is nothing more to check.
pub(super) fn accepts(header: &Header, bytes: &[u8]) -> bool {
    let first = bytes.get(LENGTH..LENGTH + RECORD).map(|record| parse(header, record, LENGTH as u64));
    matches!(first, Some(Ok(Item::Call(_)))) || bytes.len() == LENGTH
}

pub(super) fn read(header: &Header, bytes: &[u8], records: &mut Records) {
    let body = bytes.get(LENGTH..).unwrap_or_default();
    let (mut offset, mut unknown) = (LENGTH as u64, 0u64);
    for record in body.chunks_exact(RECORD) {
        match parse(header, record, offset) {
            Ok(Item::Call(call)) => records.push(call),
            Ok(Item::Argument) => {}
            Ok(Item::Unknown) | Err(_) => unknown += 1,
        }
        offset += RECORD as u64;
    }
    if unknown > 0 {
        records.notes.push(Note::new(format!("{unknown} records are of no known kind and were left out")));
    }
    let rest = body.len() % RECORD;
    if rest > 0 {
        records.notes.push(
            Note::at(
                offset,
                format!("the log is cut: its last record has {rest} of {RECORD} bytes and was left out"),
            )
            .with_hint("let the program end by itself: its threads write their last records when they end"),
        );
    }
}

enum Item {
    Call(Record),
    Argument,
    Unknown,
}

fn parse(header: &Header, record: &[u8], offset: u64) -> Result<Item> {
    let mut cursor = Cursor::part(record, header.order, offset);
    let kind = cursor.u16()?;
    cursor.skip(1)?;
    let event = cursor.u8()?;
    let id = cursor.u32()?;
    let tick = cursor.u64()?;
    let thread = cursor.u32()?;
    let process = cursor.u32()?;
    if kind == ARGUMENT {
        return Ok(Item::Argument);
    }
    let Some(is_entry) = super::records::is_entry(event).filter(|_| kind == 0 && id != 0 && id >> 31 == 0)
    else {
        return Ok(Item::Unknown);
    };
    let process = (header.version >= 3).then_some(process);
    Ok(Item::Call(Record { process, thread, id, is_entry, tick, offset }))
}
