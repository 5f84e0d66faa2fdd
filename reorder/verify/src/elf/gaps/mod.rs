//! Everything in code sections that is not a function: startup code of the C library, stubs, padding.
//!
//! Code outside of functions never moves, so it must keep its place and its references. All other bytes between the new
//! functions are either unchanged or filler that traps or does nothing.

mod aarch64;
mod carried;
mod prefixes;
mod x86_64;

pub(super) use prefixes::ends_with_padding;

use std::ops::Range;

use self::carried::CarriedData;
use self::prefixes::{SIGNED_LENGTH, carried_length, check_unreferenced, outside_of_functions};

use super::functions::Naming;
use super::pair::ImagePair;
use crate::aarch64::MovedPages;
use crate::elf::view::SectionView;
use crate::moves::AddressMoves;
use crate::padding::{new_filler_length, padding_length};
use crate::processor::Processor;
use crate::remark::Remark;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};

/// The result of checking the code of one or more gaps.
#[derive(Default)]
pub(super) struct GapCode {
    instructions: usize,
    opaque_bytes: usize,
    /// Addresses of data that the code refers to.
    pub(super) references: Vec<Address>,
    /// What pieces of the code name.
    pub(super) naming: Vec<Naming>,
}

/// Checks the gaps of all code sections.
pub(super) fn check_gaps(pair: ImagePair<'_>, findings: &mut Findings) -> GapCode {
    let (processor, moves) = (pair.old.processor, pair.moves);
    let pages = MovedPages::new(moves);
    let carried = CarriedData::find(pair, findings);
    let (mut all, mut padding) = (GapCode::default(), 0usize);
    let mut carried_constants = Vec::new();
    for old in pair.old.code_sections() {
        let Some(new) = pair.new.code_at(old.address, old.end()) else { continue };
        let old_functions = moves.iter().map(|range| range.old_start.0..range.old_end().0);
        let mut fixed = Vec::new();
        let mut prefixes = Vec::new();
        for gap in complement(old.address..old.end(), old_functions) {
            // Addresses of gaps are plain numbers: code in gaps keeps its place, so they hold in both images.
            let gap = gap.start..carried.begin_before(Address(gap.end)).0;
            let Some(bytes) = old.at(gap.start, gap.end - gap.start) else { continue };
            let code = code_of_gap(processor, bytes, gap.start, gap.start == old.address);
            if code.is_empty() {
                continue;
            }
            // Zeros after the code may be the end of a table that the program reads, so filler must not replace them.
            let zeros = bytes[code.end..].iter().take_while(|byte| **byte == 0).count();
            let mut code = code.start..code.end + zeros;
            let mut kept = 0..0;
            let reaches_function = code.end == bytes.len() && processor == Processor::X86_64;
            if let Some(next) = moves.containing(Address(gap.end)).filter(|_| reaches_function) {
                if next.is_moved() {
                    let equal = carried_length(processor, &bytes[code.clone()], next, new, findings) as u64;
                    let length = outside_of_functions(moves, next, equal);
                    prefixes.push(NewAddress(next.new_start.0 - length)..next.new_start);
                    carried_constants.push(Address(gap.end - length)..Address(gap.end));
                    code.end = match x86_64::padding_before_constants(bytes, gap.start, length as usize) {
                        Some((end, _)) => end,
                        None => code.end - length as usize,
                    };
                } else if let Some((end, constants)) =
                    x86_64::padding_before_constants(bytes, gap.start, SIGNED_LENGTH)
                {
                    kept = constants..code.end;
                    code.end = end;
                }
                // A jump leads over the padding before these bytes, so the padding may change.
                let start = gap.start + code.start as u64;
                if kept.is_empty()
                    && let Some((end, target)) = x86_64::jump_over_padding(&bytes[code.clone()], start)
                {
                    kept = code.start + target..code.end;
                    code.end = code.start + end;
                }
            }
            for code in [code, kept] {
                if code.is_empty() {
                    continue;
                }
                let code = gap.start + code.start as u64..gap.start + code.end as u64;
                let seen = match processor {
                    Processor::Aarch64 => aarch64::check(pair, &pages, (old, new), &code, findings),
                    Processor::X86_64 => x86_64::check(pair.old, (old, new), &code, moves, findings),
                };
                all.instructions += seen.instructions;
                all.opaque_bytes += seen.opaque_bytes;
                all.references.extend(seen.references);
                all.naming.extend(seen.naming);
                let place = NewAddress(code.start)..NewAddress(code.end);
                check_place(&place, moves, findings);
                fixed.push(place);
            }
        }
        let section = NewAddress(new.address)..NewAddress(new.end());
        fixed.extend(carried.places().filter(|place| section.contains(&place.start)));
        for prefix in prefixes.iter().filter(|prefix| !prefix.is_empty()) {
            check_place(prefix, moves, findings);
        }
        fixed.append(&mut prefixes);
        padding += check_padding(processor, (old, new), &fixed, moves, findings);
    }
    check_unreferenced(pair, &carried_constants, findings);
    all.references.sort_unstable();
    all.references.dedup();
    findings.checked(Check::Gaps, "instructions", all.instructions);
    findings.checked(Check::Padding, "bytes", padding);
    if all.opaque_bytes > 0 {
        findings.remark(Remark::UndecodableGaps(all.opaque_bytes));
    }
    all
}

/// The part of a gap at `address` that may be executed or read; the rest, before and after it, is padding.
pub(crate) fn code_of_gap(
    processor: Processor,
    bytes: &[u8],
    address: u64,
    starts_section: bool,
) -> Range<usize> {
    match processor {
        Processor::Aarch64 => aarch64::code_of_gap(bytes, address, starts_section),
        Processor::X86_64 => x86_64::code_of_gap(bytes, address),
    }
}

/// Checks that no function of the new image overlaps code that stays between functions.
fn check_place(code: &Range<NewAddress>, moves: &AddressMoves, findings: &mut Findings) {
    let overlapping = moves
        .containing_new(code.start)
        .or_else(|| moves.following_new(code.start).filter(|range| range.new_start < code.end));
    if let Some(range) = overlapping {
        findings.differs(Difference::new(
            Check::Gaps,
            None,
            format!("code outside of functions at {}", code.start),
            "no function in its place",
            range.to_string(),
        ));
    }
}

/// Checks that bytes between new functions, except gap code, are unchanged or filler; gives their number.
fn check_padding(
    processor: Processor,
    (old, new): (&SectionView<'_>, &SectionView<'_>),
    fixed: &[Range<NewAddress>],
    moves: &AddressMoves,
    findings: &mut Findings,
) -> usize {
    let mut total = 0;
    let mut taken: Vec<Range<u64>> = moves
        .iter_by_new_start()
        .map(|range| range.new_start.0..range.new_end().0)
        .chain(fixed.iter().map(|range| range.start.0..range.end.0))
        .collect();
    taken.sort_unstable_by_key(|range| range.start);
    for free in complement(new.address..new.end(), taken.into_iter()) {
        let size = free.end - free.start;
        total += size as usize;
        let (Some(before), Some(after)) = (old.at(free.start, size), new.at(free.start, size)) else {
            continue;
        };
        let Some(at) = first_foreign_byte(processor, before, after) else { continue };
        if !is_carried_along(processor, old, NewAddress(free.end), &after[at..], moves) {
            let address = free.start + at as u64;
            findings.differs(Difference::new(
                Check::Padding,
                Some(new.offset + (address - new.address)),
                format!("padding at {}", NewAddress(address)),
                format!("{:#04x} or filler", before[at]),
                format!("{:#04x}", after[at]),
            ));
        }
    }
    total
}

/// Whether the bytes `carried`, which fill a hole up to `end`, are the old padding before the next function, moved with it.
fn is_carried_along(
    processor: Processor,
    old: &SectionView<'_>,
    end: NewAddress,
    carried: &[u8],
    moves: &AddressMoves,
) -> bool {
    let Some(next) = moves.containing_new(end) else { return false };
    let start = next.old_start.0.wrapping_sub(carried.len() as u64);
    let is_free = (start..next.old_start.0).all(|address| moves.containing(Address(address)).is_none());
    is_free
        && old.at(start, carried.len() as u64) == Some(carried)
        && is_end_of_padding(processor, old, Address(start), carried.len(), moves)
}

/// Whether these bytes of the old image are the end of a run that is padding as a whole.
fn is_end_of_padding(
    processor: Processor,
    old: &SectionView<'_>,
    start: Address,
    size: usize,
    moves: &AddressMoves,
) -> bool {
    let after_previous = moves.preceding(start).map_or(old.address, |range| range.old_end().0);
    let run_start = after_previous.max(old.address);
    let run = old.at(run_start, (start.0 + size as u64).saturating_sub(run_start));
    run.is_some_and(|run| padding_length(processor, run, run_start) == run.len())
}

/// Position of the first byte of a hole that is neither unchanged nor filler of an assembler or linker.
fn first_foreign_byte(processor: Processor, before: &[u8], after: &[u8]) -> Option<usize> {
    if before == after {
        return None;
    }
    let step = match processor {
        Processor::Aarch64 => 4,
        Processor::X86_64 => 1,
    };
    let mut position = 0;
    while position < after.len() {
        let filler = new_filler_length(processor, &after[position..]);
        let end = (position + step).min(after.len());
        if filler > 0 {
            position += filler;
        } else if before[position..end] == after[position..end]
            || after[position..end].iter().all(|&byte| byte == 0)
        {
            // Some linkers fill with zeros; moving functions back to such a layout restores them.
            position = end;
        } else {
            return Some(position);
        }
    }
    None
}

/// The parts of `whole` outside of `parts`, which are sorted and disjoint.
pub(super) fn complement(whole: Range<u64>, parts: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    let mut position = whole.start;
    for part in parts.skip_while(|part| part.end <= whole.start).take_while(|part| part.start < whole.end) {
        if part.start > position {
            rest.push(position..part.start);
        }
        position = position.max(part.end);
    }
    if position < whole.end {
        rest.push(position..whole.end);
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_hold_old_bytes_or_filler() {
        assert_eq!(first_foreign_byte(Processor::X86_64, &[1, 2, 3, 4], &[1, 0x0f, 0x1f, 0x00]), None);
        assert_eq!(first_foreign_byte(Processor::X86_64, &[1, 2, 3, 4], &[0xcc, 2, 0x90, 4]), None);
        assert_eq!(first_foreign_byte(Processor::X86_64, &[1, 2, 3, 4], &[1, 2, 9, 4]), Some(2));
        // A prefix before a trap: the two decode as one instruction.
        assert_eq!(first_foreign_byte(Processor::X86_64, &[1, 2, 3, 4], &[0xcc, 0x4c, 0x90, 0xcc]), Some(1));
    }

    proptest::proptest! {
        #[test]
        fn complement_and_parts_make_the_whole(starts in proptest::collection::btree_set(0u64..200, 0..20)) {
            let bounds: Vec<u64> = starts.into_iter().collect();
            let parts: Vec<Range<u64>> = bounds.chunks_exact(2).map(|pair| pair[0]..pair[1]).collect();
            let rest = complement(50..150, parts.iter().cloned());
            for address in 0..200u64 {
                let expected = (50..150).contains(&address) && !parts.iter().any(|part| part.contains(&address));
                proptest::prop_assert_eq!(rest.iter().any(|part| part.contains(&address)), expected);
            }
        }
    }
}
