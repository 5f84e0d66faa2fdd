//! A function with readable bytes before it must still have readable bytes before it.
//!
//! Clang's checked calls (`-fsanitize=function`) read eight bytes before every callee, even if the callee has no signature.

use super::pair::ImagePair;
use crate::elf::view::ElfView;
use crate::report::{Check, Difference, Findings};

/// Bytes of a signature and a hash.
const SIZE: u64 = 8;
/// Bits of an address within the smallest page.
const PAGE_BITS: u32 = 12;

/// Checks all functions that moved.
pub(crate) fn check_first_bytes(pair: ImagePair<'_>, findings: &mut Findings) {
    let is_readable = |image: &ElfView<'_>, start: u64| {
        start.checked_sub(SIZE).is_some_and(|first| is_loaded(image, first))
    };
    for range in pair.moves.iter().filter(|range| range.is_moved()) {
        // Bytes before the function on the same page are mapped together with it.
        let starts_page = range.new_start.0 % (1 << PAGE_BITS) < SIZE;
        if starts_page
            && is_readable(pair.old, range.old_start.0)
            && !is_readable(pair.new, range.new_start.0)
        {
            findings.differs(Difference::new(
                Check::Functions,
                None,
                range.to_string(),
                "readable bytes before it, as checked calls read them",
                "nothing mapped",
            ));
        }
    }
}

/// Whether the page of `address` belongs to a loaded segment.
fn is_loaded(image: &ElfView<'_>, address: u64) -> bool {
    let page = address >> PAGE_BITS;
    image.mapped.iter().any(|segment| {
        let last = segment.p_vaddr.saturating_add(segment.p_memsz.saturating_sub(1));
        segment.p_memsz > 0 && (segment.p_vaddr >> PAGE_BITS..=last >> PAGE_BITS).contains(&page)
    })
}
