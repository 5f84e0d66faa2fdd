//! The header: version, flags, and where the sections are.

use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::{Error, Result};

/// The first eight bytes.
pub(super) const MAGIC: [u8; 8] = *b"\xfflprofi\x81";

/// Where the version's low half ends and its flags begin.
const VERSION_BITS: u32 = 32;

/// Counters of instrumented IR; without it, of source regions.
const IS_IR: u64 = 1 << 56;
/// The first counter is the function's entry.
const ENTRY_IS_FIRST: u64 = 1 << 58;
/// The functions have their traces.
const HAS_TRACES: u64 = 1 << 63;

/// The oldest version whose records are laid out as they are now.
const OLDEST: u32 = 4;
/// LLVM 22's.
const NEWEST: u32 = 13;
/// The first one with bitmaps in the records.
const WITH_BITMAPS: u32 = 11;

/// What the header says, as far as orders need it.
pub(super) struct Header {
    /// Offset of the function table's buckets.
    pub(super) table: u64,
    /// Offset of the traces, when there are any.
    pub(super) traces: Option<u64>,
    version: u32,
    flags: u64,
}

impl Header {
    /// Reads the beginning of a file that starts with [`MAGIC`].
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        let mut cursor = Cursor::new(bytes, ByteOrder::Little);
        cursor.skip(MAGIC.len() as u64)?;
        let at = cursor.offset();
        let flags = cursor.u64()?;
        let version = (flags & ((1 << VERSION_BITS) - 1)) as u32;
        if !(OLDEST..=NEWEST).contains(&version) {
            return Err(unknown_version(at, version));
        }
        cursor.skip(8)?;
        let hash_type = cursor.u64()?;
        if hash_type != 0 {
            let message = format!("names are hashed in an unknown way (type {hash_type}); only MD5 is known");
            return Err(Error::malformed(cursor.offset() - 8, message));
        }
        let table = cursor.u64()?;
        // Offsets of the profiled allocations (since 8) and of the build-ids (since 9) are not needed.
        let skipped = [8, 9].into_iter().filter(|since| version >= *since).count();
        cursor.skip(8 * skipped as u64)?;
        let has_traces = flags & HAS_TRACES != 0 && version >= 10;
        let traces = has_traces.then(|| cursor.u64()).transpose()?;
        Ok(Self { table, traces, version, flags })
    }

    /// Whether the first counter of a function is the number of its executions.
    pub(super) fn counts_entries(&self) -> bool {
        self.flags & IS_IR == 0 || self.flags & ENTRY_IS_FIRST != 0
    }

    /// Whether records have bitmaps after their counters.
    pub(super) fn has_bitmaps(&self) -> bool {
        self.version >= WITH_BITMAPS
    }
}

fn unknown_version(at: u64, version: u32) -> Error {
    let message = format!("an indexed profile of version {version}; versions {OLDEST} to {NEWEST} are known");
    let hint = if version > NEWEST {
        "write it as text with the llvm-profdata that made it: llvm-profdata merge --text FILE -o profile.proftext; and give that"
    } else {
        "merge the raw profiles again with llvm-profdata 17 or later: older ones keep no order"
    };
    Error::malformed(at, message).with_hint(hint)
}
