//! The kernel's records, field by field.
//!
//! The library has readers for them too; they fail an assertion on a build-id of more than 20 bytes, multiply lengths
//! unchecked, and take the counters that a sample may carry for groups of them when they are single and the reverse,
//! whereby everything after them is lost.

use linux_perf_data::linux_perf_event_reader::{ReadFormat, RecordParseInfo, RecordType, SampleFormat};

use crate::Name;
use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::{Error, Result};

/// What a record says, as far as it is of interest.
pub(super) enum Record {
    Map(Map),
    /// A process has another name, or with `is_execution` another program.
    Name {
        process: u32,
        name: Name,
        is_execution: bool,
    },
    Fork {
        child: u32,
        parent: u32,
    },
    Lost(u64),
    Sample(Sample),
    Other,
}

pub(super) struct Map {
    pub(super) process: u32,
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) path: Vec<u8>,
    pub(super) build_id: Option<Vec<u8>>,
}

#[derive(Default)]
pub(super) struct Sample {
    pub(super) process: Option<u32>,
    /// The instruction; `None` in the kernel.
    pub(super) instruction: Option<u64>,
    /// What a page fault was about.
    pub(super) data: Option<u64>,
    /// The user's part of the call chain, innermost first; the first one is the instruction again.
    pub(super) callers: Vec<u64>,
    pub(super) is_in_kernel: bool,
    /// What a probe in user code adds, whatever it is called.
    pub(super) probe: Option<Probe>,
}

/// Where a probe in user code sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// At the instruction that was sampled.
    Here,
    /// At the return of a function to it.
    Return,
}

/// Bits of a record's header.
const MODE: u16 = 7;
const KERNEL: u16 = 1;
const HYPERVISOR: u16 = 3;
const GUEST_KERNEL: u16 = 4;
const IS_EXECUTION: u16 = 1 << 13;
const HAS_BUILD_ID: u16 = 1 << 14;

/// Reads the body of one record.
///
/// # Errors
/// It is shorter than its kind demands.
pub(super) fn read(
    kind: RecordType,
    misc: u16,
    body: &[u8],
    order: ByteOrder,
    format: &RecordParseInfo,
) -> Result<Record> {
    let mut cursor = Cursor::new(body, order);
    Ok(match kind {
        RecordType::MMAP => Record::Map(read_map(&mut cursor, None)?),
        RecordType::MMAP2 => Record::Map(read_map(&mut cursor, Some(misc))?),
        RecordType::COMM => {
            let process = cursor.u32()?;
            cursor.skip(4)?;
            let name = Name::from(text(cursor.rest()));
            Record::Name { process, name, is_execution: misc & IS_EXECUTION != 0 }
        }
        RecordType::FORK => Record::Fork { child: cursor.u32()?, parent: cursor.u32()? },
        RecordType::LOST => {
            cursor.skip(8)?;
            Record::Lost(cursor.u64()?)
        }
        RecordType::LOST_SAMPLES => Record::Lost(cursor.u64()?),
        RecordType::SAMPLE => Record::Sample(read_sample(&mut cursor, misc, format)?),
        _ => Record::Other,
    })
}

/// Up to the first NUL.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// `pid, tid, address, size, offset`, in newer records `build-id or inode, protection, flags`, path.
fn read_map(cursor: &mut Cursor<'_>, newer: Option<u16>) -> Result<Map> {
    let process = cursor.u32()?;
    cursor.skip(4)?;
    let (start, size, offset) = (cursor.u64()?, cursor.u64()?, cursor.u64()?);
    let mut build_id = None;
    if let Some(misc) = newer {
        const MAX_LENGTH: usize = 20;
        let length = usize::from(cursor.u8()?);
        cursor.skip(3)?;
        let bytes = cursor.take(MAX_LENGTH as u64)?;
        let has_build_id = misc & HAS_BUILD_ID != 0 && (1..=MAX_LENGTH).contains(&length);
        build_id = has_build_id.then(|| bytes[..length].to_vec());
        cursor.skip(8)?;
    }
    Ok(Map { process, start, size, offset, path: text(cursor.rest()).to_vec(), build_id })
}

/// The fields are in the order of the bits that say which are there.
fn read_sample(cursor: &mut Cursor<'_>, misc: u16, info: &RecordParseInfo) -> Result<Sample> {
    let has = |field: SampleFormat| info.sample_format.contains(field);
    let mut sample = Sample::default();
    let mode = misc & MODE;
    sample.is_in_kernel = matches!(mode, KERNEL | HYPERVISOR | GUEST_KERNEL);
    if has(SampleFormat::IDENTIFIER) {
        cursor.skip(8)?;
    }
    if has(SampleFormat::IP) {
        sample.instruction = Some(cursor.u64()?).filter(|_| !sample.is_in_kernel);
    }
    if has(SampleFormat::TID) {
        sample.process = Some(cursor.u32()?);
        cursor.skip(4)?;
    }
    if has(SampleFormat::TIME) {
        cursor.skip(8)?;
    }
    if has(SampleFormat::ADDR) {
        sample.data = Some(cursor.u64()?);
    }
    for field in [SampleFormat::ID, SampleFormat::STREAM_ID, SampleFormat::CPU, SampleFormat::PERIOD] {
        if has(field) {
            cursor.skip(8)?;
        }
    }
    if has(SampleFormat::READ) {
        skip_counters(cursor, info.read_format)?;
    }
    if has(SampleFormat::CALLCHAIN) {
        sample.callers = read_callers(cursor)?;
    }
    if has(SampleFormat::RAW) {
        let size = cursor.u32()?;
        let at = cursor.offset();
        let raw = Cursor::part(cursor.take(size.into())?, cursor.order(), at);
        sample.probe = sample.instruction.and_then(|instruction| probe(raw, instruction));
    }
    Ok(sample)
}

/// After what all tracepoints have in common, a probe stores its own address, one at a function's return the function's
/// and the address that it returns to. Other tracepoints do not repeat the address of the sample.
fn probe(mut raw: Cursor<'_>, instruction: u64) -> Option<Probe> {
    const COMMON: u64 = 8;
    raw.skip(COMMON).ok()?;
    if raw.u64().ok()? == instruction {
        return Some(Probe::Here);
    }
    (raw.u64().ok()? == instruction).then_some(Probe::Return)
}

/// One counter, or a group of them.
fn skip_counters(cursor: &mut Cursor<'_>, format: ReadFormat) -> Result<()> {
    let has = |field: ReadFormat| u64::from(format.contains(field));
    let times = has(ReadFormat::TOTAL_TIME_ENABLED) + has(ReadFormat::TOTAL_TIME_RUNNING);
    // The kernel's newest bit counts lost events, which the library does not know yet.
    let each = 1 + has(ReadFormat::ID);
    let is_group = format.contains(ReadFormat::GROUP);
    let counters = cursor.u64()?;
    cursor.skip(8 * times)?;
    if is_group { cursor.take_array(counters, 8 * each).map(|_| ()) } else { cursor.skip(8 * (each - 1)) }
}

/// Addresses of user code: marks in the chain say whether the addresses after them are the user's or the kernel's.
fn read_callers(cursor: &mut Cursor<'_>) -> Result<Vec<u64>> {
    const FIRST_MARK: u64 = (-4095i64) as u64;
    const USER: u64 = (-512i64) as u64;
    const KERNEL_HALF: u64 = 1 << 63;
    let count = cursor.u64()?;
    let at = cursor.offset();
    let mut chain = Cursor::part(cursor.take_array(count, 8)?, cursor.order(), at);
    let mut callers = Vec::new();
    let mut is_user = true;
    while !chain.is_at_end() {
        match chain.u64()? {
            mark if mark >= FIRST_MARK => is_user = mark == USER,
            address if is_user && address & KERNEL_HALF == 0 => callers.push(address),
            _ => {}
        }
    }
    Ok(callers)
}

/// Turns a failure inside a record into one of the file.
pub(super) fn damaged(error: &Error) -> String {
    format!("records were too short to be read ({})", error.message)
}
