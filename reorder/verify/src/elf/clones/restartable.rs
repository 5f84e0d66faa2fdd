//! Restartable sequences: the kernel compares an interrupted program counter with the addresses that a program lists in
//! `__rseq_cs`. In a copy it would not restart them, so their functions have none.
//!
//! Source: Linux, `include/uapi/linux/rseq.h`.

use goblin::elf::section_header::SHT_RELA;

use super::copies::Copies;
use crate::bytes::u64_at;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::Address;

const LIST: &[u8] = b"__rseq_cs";
const RELA_SIZE: usize = 24;
const WORD: usize = 8;

/// Checks that no listed address lies in a function with a copy.
pub(super) fn check_restartable(copies: &Copies<'_>, findings: &mut Findings) {
    let Some(list) = copies.old.section(LIST) else { return };
    let words = list.bytes.chunks_exact(WORD).filter_map(|word| u64_at(word, 0));
    let relocations = copies.old.sections.iter().filter(|section| section.kind == SHT_RELA);
    let addends = relocations.flat_map(|section| section.bytes.chunks_exact(RELA_SIZE)).filter_map(|entry| {
        let is_listed = list.holds(u64_at(entry, 0)?, u64_at(entry, 0)?.saturating_add(1));
        is_listed.then(|| u64_at(entry, 16))?
    });
    if let Some(address) = words.chain(addends).map(Address).find(|address| copies.has_copy(*address)) {
        let name = format!("the function that contains {address}");
        let found = "a copy, although the kernel restarts the sequence there";
        findings.differs(Difference::new(Check::Copies, None, name, "no copy", found));
    }
}
