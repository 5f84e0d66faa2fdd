//! The header that all files of the system start with.
//!
//! ```text
//! offset                      0      4        6          8             12           16            20    24  28
//! 32 bytes                    magic  version  file type  profile type  module hash  base of raw offsets 0   0x20
//! 24 bytes, an older layout   magic  version  file type  profile type  module hash  0             0x18
//! ```
//!
//! Both layouts state version 8; the last word, where the data start, distinguishes them.

use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::{Error, Result};

/// The first four bytes.
pub(super) const MAGIC: [u8; 4] = *b"\xfbMIP";

const COVERAGE: u32 = 1;
/// Number of calls and time of the first one; set together.
const CALL_GRAPH: u32 = 4 | 8;

/// The beginning of a file or of one link unit's part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) mode: Mode,
    /// By which the files of one link unit know each other.
    pub(super) module: u32,
    /// The base of a map's raw offsets; not used in other files.
    pub(super) base: i64,
    /// Whether offsets have 64 bits.
    pub(super) is_64_bit: bool,
    /// Length of the header.
    pub(super) length: usize,
}

/// What the file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What one run wrote.
    Raw,
    /// What the compiler knows of each function.
    Map,
    /// Several runs added up, with names.
    Merged,
}

/// What is recorded of each function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// One byte: executed or not.
    Coverage,
    /// Calls, and the time of the first.
    CallGraph,
}

impl Header {
    /// Reads the header at the start of `bytes`, which lie at `at` in their file.
    pub(super) fn read(bytes: &[u8], at: u64) -> Result<Self> {
        let mut cursor = Cursor::part(bytes, ByteOrder::Little, at);
        if cursor.take(4)? != MAGIC {
            return Err(Error::malformed(at, "not a Machine IR profile"));
        }
        let _version = cursor.u16()?;
        let file_type = cursor.u16()?;
        let profile_type = cursor.u32()?;
        let module = cursor.u32()?;
        let (low, high) = (cursor.u32()?, cursor.u32()?);
        if (low, high) == (0, 0x18) {
            return Self::of_layout(
                at,
                file_type,
                profile_type,
                Self { length: 0x18, module, ..Self::EMPTY },
            );
        }
        cursor.skip(4)?;
        if cursor.u32()? != 0x20 {
            return Err(Error::malformed(cursor.offset() - 4, "a header of an unknown layout"));
        }
        let is_64_bit = file_type & 0x20 == 0;
        let base = if is_64_bit {
            (u64::from(high) << 32 | u64::from(low)).cast_signed()
        } else {
            i64::from(low.cast_signed())
        };
        Self::of_layout(
            at,
            file_type,
            profile_type,
            Self { length: 0x20, module, base, is_64_bit, ..Self::EMPTY },
        )
    }

    const EMPTY: Self =
        Self { kind: Kind::Merged, mode: Mode::Coverage, module: 0, base: 0, is_64_bit: true, length: 0 };

    fn of_layout(at: u64, file_type: u16, profile_type: u32, header: Self) -> Result<Self> {
        // Of the two other bits one is that of samples of call edges; their layout tells them from merged files.
        let (map, merged) = if header.length == 0x18 { (2, [4, 8]) } else { (4, [2, 8]) };
        let kind = match file_type & 0xf {
            1 => Kind::Raw,
            kind if kind == map => Kind::Map,
            kind if merged.contains(&kind) => Kind::Merged,
            _ => {
                let message = format!("a file of an unknown type ({file_type:#x})");
                return Err(Error::malformed(at + 6, message).with_hint(
                    "raw profiles, maps and merged profiles are known: give the .mipraw file of the run",
                ));
            }
        };
        let mode = match profile_type {
            kinds if kinds & CALL_GRAPH == CALL_GRAPH => Mode::CallGraph,
            kinds if kinds & COVERAGE != 0 => Mode::Coverage,
            other => {
                let message =
                    format!("a profile of an unknown type ({other:#x}); call graphs and coverage are known");
                return Err(Error::malformed(at + 8, message));
            }
        };
        Ok(Self { kind, mode, ..header })
    }
}
