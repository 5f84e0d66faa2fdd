//! Every byte that no other check claims: the same, or a word relative to its own place that follows the map.
//!
//! Two directions. A word of data that changed must be a distance that followed a function. And a word of data that is
//! exactly the distance to the start of a function that moved must have followed it, because Swift's tables and relative
//! method lists are not marked in any other way. The relocator does not move the target of such a word unless it knows its
//! meaning.

use std::ops::Range;

use super::super::bytes::{displacement_at, range, u32_at};
use super::super::processor::Processor;
use super::super::report::{Check, Difference};
use super::super::unchanged::Claims;
use super::pair::{Ledger, MachPair};
use super::view::{MachView, SectionView};
use reorder_base::address::{Address, NewAddress};

/// Whether other checks compare the words of this section.
fn is_known(section: &SectionView<'_>) -> bool {
    const INITIALISER_OFFSETS: u32 = 0x16;
    section.is_code()
        || section.is(b"__TEXT", b"__unwind_info")
        || section.is(b"__TEXT", b"__eh_frame")
        || section.kind() == INITIALISER_OFFSETS
}

/// Sections in which every distance into `__text` counts, not only those to the start of a function.
fn is_of_methods(section: &SectionView<'_>) -> bool {
    section.name == super::view::padded(b"__objc_methlist")
}

/// Calls `found` with each aligned word of data that is a distance into `__text`, unless other checks know its section or
/// it is part of a pointer: its address, its position in the file and what it leads to. `slots` are the positions of
/// pointers, ascending.
pub(super) fn for_each_relative_word(
    image: &MachView<'_>,
    slots: &[u32],
    mut found: impl FnMut(u64, usize, u64),
) {
    let text = image.text().range();
    for section in image.sections.iter().filter(|section| !section.bytes.is_empty() && !is_known(section)) {
        let skipped = (section.address.wrapping_neg() % 4) as usize;
        for at in (skipped..section.bytes.len().saturating_sub(3)).step_by(4) {
            let Some(distance) = displacement_at(section.bytes, at).filter(|&distance| distance != 0) else {
                continue;
            };
            let place = section.address.wrapping_add(at as u64);
            let (target, offset) = (place.wrapping_add(distance), section.offset as usize + at);
            if text.contains(&target) && !is_in_slot(slots, offset) {
                found(place, offset, target);
            }
        }
    }
}

/// Checks self-relative words in data that must have followed their targets. `slots` are the positions of pointers,
/// ascending.
pub(super) fn check_relative_words(pair: MachPair<'_>, slots: &[u32], ledger: &mut Ledger<'_>) {
    let mut count = 0;
    for_each_relative_word(pair.old, slots, |place, offset, target| {
        let (section, target) = (section_of(pair, offset), Address(target));
        if !(pair.is_moved_start(target) || section.is_some_and(is_of_methods)) {
            return;
        }
        count += 1;
        let found = NewAddress(place.wrapping_add(displacement_at(pair.new.bytes, offset).unwrap_or(0)));
        let title =
            format!("the distance at {place:#x} in {}", section.map(SectionView::title).unwrap_or_default());
        ledger.follows(pair, Check::RelativeWords, offset, &title, target, found);
        ledger.claims.add(offset as u64, 4);
    });
    ledger.findings.checked(Check::RelativeWords, "distances", count);
}

/// Whether the word at `offset` is part of a pointer.
fn is_in_slot(slots: &[u32], offset: usize) -> bool {
    let after = slots.partition_point(|&slot| slot as usize <= offset);
    after.checked_sub(1).is_some_and(|index| offset < slots[index] as usize + 8)
}

/// Compares all bytes outside of the claims.
pub(super) fn check_the_rest(
    pair: MachPair<'_>,
    claims: Claims,
    findings: &mut super::super::report::Findings,
) {
    let (old, new) = (pair.old.bytes, pair.new.bytes);
    let mut explained_to = 0;
    let compared = claims.compare_rest(old, new, |run: Range<usize>| {
        let mut at = run.start.max(explained_to);
        while at < run.end {
            match followed_word(pair, at) {
                Some(end) => at = end,
                None => {
                    if findings.lists_more() {
                        let place = describe(pair, at);
                        let (expected, found) = (old[at].into(), new[at].into());
                        let difference =
                            Difference::number(Check::Unchanged, at as u64, &place, expected, found);
                        findings.differs(difference);
                    } else {
                        findings.differs_silently();
                    }
                    return;
                }
            }
        }
        explained_to = at;
    });
    findings.checked(Check::Unchanged, "bytes", compared);
}

/// The end of the word at the changed position `at`, if it is a distance that followed its target in a function.
fn followed_word(pair: MachPair<'_>, at: usize) -> Option<usize> {
    let section = section_of(pair, at).filter(|section| !section.is_code() && section.segment[0] != 0)?;
    let address = section.address + (at as u64 - section.offset);
    let aligned = at - (address % 4) as usize;
    if is_followed(pair, section, aligned) {
        return Some(aligned + 4);
    }
    // Mangled names of types contain distances at any position, after a byte that marks them.
    let is_symbolic = |start: &usize| {
        let mark = start.checked_sub(1).and_then(|before| pair.old.bytes.get(before));
        mark.is_some_and(|mark| (0x01..=0x1f).contains(mark)) && is_followed(pair, section, *start)
    };
    let is_of_names = section.name == super::view::padded(b"__swift5_typeref");
    let first = at.saturating_sub(3).max(section.offset as usize);
    (first..=at).filter(|_| is_of_names).find(is_symbolic).map(|start| start + 4)
}

/// Whether the word at `start` was the distance to a place in a function and is now the distance to its new place.
fn is_followed(pair: MachPair<'_>, section: &SectionView<'_>, start: usize) -> bool {
    let place = (section.address + start as u64).wrapping_sub(section.offset);
    let (old, new) = (displacement_at(pair.old.bytes, start), displacement_at(pair.new.bytes, start));
    let (Some(old), Some(new)) = (old, new) else { return false };
    let target = Address(place.wrapping_add(old));
    let may_follow =
        pair.is_moved_start(target) || pair.is_text(target) && may_lead_inside(pair, section, target);
    old != new && may_follow && pair.follows(target, NewAddress(place.wrapping_add(new)))
}

/// Whether distances in `section` may lead to other places of a function than its start. In other sections any small
/// number would count as such a distance.
fn may_lead_inside(pair: MachPair<'_>, section: &SectionView<'_>, target: Address) -> bool {
    let is_of_swift = |section: &SectionView<'_>| section.name.starts_with(b"__swift5_");
    let is_record = [&b"__constg_swiftt"[..], b"__const"].map(super::view::padded).contains(&section.name);
    is_of_methods(section)
        || is_of_swift(section)
        || section.name.starts_with(b"__swift_")
        || is_record && pair.old.sections.iter().any(is_of_swift)
        || has_computed_jump(pair, target)
}

/// Whether the function at `target` has a computed jump, and so may have a table of distances in data.
fn has_computed_jump(pair: MachPair<'_>, target: Address) -> bool {
    let text = pair.old.text();
    let code = pair
        .moves
        .containing(target)
        .and_then(|atom| range(text.bytes, atom.old_start.0.wrapping_sub(text.address), atom.size));
    let code = code.unwrap_or_default();
    match pair.old.processor {
        // `BR` and its authenticated forms.
        Processor::Aarch64 => code
            .chunks_exact(4)
            .any(|word| u32_at(word, 0).is_some_and(|word| word & 0xfee0_0000 == 0xd600_0000)),
        // `JMP` to a register or to what is in memory.
        Processor::X86_64 => code.windows(2).any(|pair| pair[0] == 0xff && pair[1] >> 3 & 7 == 4),
    }
}

fn section_of<'a>(pair: MachPair<'a>, at: usize) -> Option<&'a SectionView<'a>> {
    pair.old.sections.iter().find(|section| {
        let start = section.offset as usize;
        !section.bytes.is_empty() && (start..start + section.bytes.len()).contains(&at)
    })
}

/// Where a file position lies, for people.
fn describe(pair: MachPair<'_>, at: usize) -> String {
    match section_of(pair, at) {
        Some(section) => {
            format!("a byte of {} at {:#x}", section.title(), section.address + (at as u64 - section.offset))
        }
        None => "a byte of the headers or between sections".to_owned(),
    }
}
