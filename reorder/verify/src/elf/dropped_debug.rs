//! Dropped debug data: contents zeroed and the size in the section header set to zero, with no other change.

use super::pair::{ImagePair, Ledger};
use crate::bytes::range;
use crate::elf::view::SECTION_HEADER_SIZE;
use crate::remark::Remark;

/// Position of `sh_size` in a section header.
const SIZE_FIELD: u64 = 32;

const DEBUG_PREFIXES: [&[u8]; 7] =
    [b".debug_", b".zdebug_", b".rela.debug_", b".crel.debug_", b".gdb_index", b".gnu_debugdata", b".stab"];

/// Claims the bytes of dropped debug sections; all other debug sections are left to other checks.
pub(crate) fn accept_dropped_debug(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    let mut dropped = 0;
    let mut kept = 0;
    for (index, (old, new)) in pair.old.sections.iter().zip(&pair.new.sections).enumerate() {
        let is_debug = !old.is_loaded() && DEBUG_PREFIXES.iter().any(|prefix| old.name.starts_with(prefix));
        if !is_debug || old.bytes.is_empty() {
            continue;
        }
        if !new.bytes.is_empty() {
            kept += 1;
            continue;
        }
        let contents = range(pair.new.bytes, old.offset, old.bytes.len() as u64).unwrap_or_default();
        if contents.iter().all(|&byte| byte == 0) {
            dropped += 1;
            ledger.claims.add(old.offset, old.bytes.len() as u64);
            let header = pair.old.header.e_shoff + index as u64 * SECTION_HEADER_SIZE;
            ledger.claims.add(header + SIZE_FIELD, 8);
        }
    }
    if dropped > 0 {
        ledger.findings.remark(Remark::DebugSectionsDropped(dropped));
    }
    if kept > 0 && pair.moves.moved() > 0 {
        ledger.findings.remark(Remark::DebugSectionsStale(kept));
    }
}
