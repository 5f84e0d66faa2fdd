//! The header of a profile: its version, what its counters are, and the sizes of its sections.
//!
//! All fields are u64. Those of the bitmap came with version 9, those of virtual tables with version 10.

use super::encoding::VERSIONS;
use crate::cursor::Cursor;
use reorder_base::error::{Error, Result};

/// What the upper half of the version says about the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flags(u64);

impl Flags {
    const INTERMEDIATE_LEVEL: u64 = 1 << 56;
    const ENTRY_FIRST: u64 = 1 << 58;
    const DEBUG_INFO: u64 = 1 << 59;
    const BYTE_COVERAGE: u64 = 1 << 60;
    const TEMPORAL: u64 = 1 << 63;

    /// Whether the compiler's middle end put the counters in; otherwise its front end did, for source coverage.
    pub(super) fn is_intermediate_level(self) -> bool {
        self.has(Self::INTERMEDIATE_LEVEL)
    }

    /// Whether a function's first counter counts its calls: the front end's always does.
    pub(super) fn counts_entries_first(self) -> bool {
        self.has(Self::ENTRY_FIRST) || !self.is_intermediate_level()
    }

    /// Whether names and records are in the debug information of the program.
    pub(super) fn is_in_debug_info(self) -> bool {
        self.has(Self::DEBUG_INFO)
    }

    /// Whether a counter is one byte that says whether code ran.
    pub(super) fn is_byte_coverage(self) -> bool {
        self.has(Self::BYTE_COVERAGE)
    }

    /// Whether the compiler was asked for timestamps.
    pub(super) fn is_temporal(self) -> bool {
        self.has(Self::TEMPORAL)
    }

    fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
}

/// The sizes in a header, as far as they are used.
pub(super) struct Header {
    pub(super) version: u32,
    pub(super) flags: Flags,
    pub(super) build_id_bytes: u64,
    pub(super) records: u64,
    pub(super) padding_before_counters: u64,
    pub(super) counters: u64,
    pub(super) padding_after_counters: u64,
    pub(super) bitmap_bytes: u64,
    pub(super) padding_after_bitmap: u64,
    pub(super) names: u64,
    pub(super) counters_delta: u64,
    pub(super) names_delta: u64,
    pub(super) vtables: u64,
    pub(super) vtable_names: u64,
}

impl Header {
    /// Everything after the magic.
    pub(super) fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        let version_offset = cursor.offset();
        let word = cursor.u64()?;
        let version = word as u32;
        if !VERSIONS.contains(&version) {
            let message = format!("raw profile version {version}; versions 8 to 10 are read (LLVM 14 to 22)");
            return Err(Error::malformed(version_offset, message).with_hint(
                "merge it with the llvm-profdata of the compiler that made it, and give the result: llvm-profdata \
                 merge FILE.profraw -o FILE.profdata",
            ));
        }
        let has_bitmap = version >= 9;
        let has_vtables = version >= 10;
        let optional = |cursor: &mut Cursor<'_>, present| if present { cursor.u64() } else { Ok(0) };
        let (build_id_bytes, records) = (cursor.u64()?, cursor.u64()?);
        let (padding_before_counters, counters) = (cursor.u64()?, cursor.u64()?);
        let padding_after_counters = cursor.u64()?;
        let bitmap_bytes = optional(cursor, has_bitmap)?;
        let padding_after_bitmap = optional(cursor, has_bitmap)?;
        let (names, counters_delta) = (cursor.u64()?, cursor.u64()?);
        let _bitmap_delta = optional(cursor, has_bitmap)?;
        let names_delta = cursor.u64()?;
        let vtables = optional(cursor, has_vtables)?;
        let vtable_names = optional(cursor, has_vtables)?;
        let _last_value_kind = cursor.u64()?;
        Ok(Self {
            version,
            flags: Flags(word),
            build_id_bytes,
            records,
            padding_before_counters,
            counters,
            padding_after_counters,
            bitmap_bytes,
            padding_after_bitmap,
            names,
            counters_delta,
            names_delta,
            vtables,
            vtable_names,
        })
    }
}
