//! AArch64 code outside of functions.
//!
//! It keeps its place, but its fields may follow what they name, as those of functions do.

use std::ops::Range;

use super::GapCode;
use crate::aarch64::{CodePair, Counts, MovedPages, addresses, effects};
use crate::bytes::u32_at;
use crate::elf::functions::Naming;
use crate::elf::pair::ImagePair;
use crate::elf::view::SectionView;
use crate::moves::Move;
use crate::padding::padding_length;
use crate::processor::Processor;
use crate::report::{Check, Difference, Findings};
use reorder_base::address::{Address, NewAddress};

/// The part of a gap at `address` that may be executed or read: all but the padding at its start and the padding after the
/// last jump out of it. The start of a section is never padding: control may enter there without a visible reference.
pub(super) fn code_of_gap(bytes: &[u8], address: u64, starts_section: bool) -> Range<usize> {
    let start = if starts_section { 0 } else { padding_length(Processor::Aarch64, bytes, address) };
    let end = end_of_code(bytes, address);
    let leaves =
        end.checked_sub(4).and_then(|last| u32_at(bytes, last)).is_some_and(|word| effects(word).ends);
    start..if leaves || end <= start { end.max(start) } else { bytes.len() }
}

/// Start of the padding at the end of `bytes`.
fn end_of_code(bytes: &[u8], address: u64) -> usize {
    let first = (address.wrapping_neg() % 4) as usize;
    let words = bytes.len().saturating_sub(first) / 4;
    let is_padding = |end: usize| padding_length(Processor::Aarch64, &bytes[end - 4..end], 0) == 4;
    let end = bytes.len() - (bytes.len().saturating_sub(first) % 4);
    let count = (0..words).take_while(|number| is_padding(end - number * 4)).count();
    end - count * 4
}

/// Bytes of a piece of code whose names count as those of one function.
const MAX_PIECE: usize = 1 << 13;

/// Checks that the code keeps its place and that its words are the same or follow the map.
pub(super) fn check(
    images: ImagePair<'_>,
    pages: &MovedPages,
    (old, new): (&SectionView<'_>, &SectionView<'_>),
    code: &Range<u64>,
    findings: &mut Findings,
) -> GapCode {
    let size = code.end - code.start;
    let (Some(before), Some(after)) = (old.at(code.start, size), new.at(code.start, size)) else {
        return GapCode::default();
    };
    // The first instruction may stand after bytes of data.
    let data = before.len().min((code.start.wrapping_neg() % 4) as usize);
    let offset = new.offset + (code.start - new.address);
    if before[..data] != after[..data] {
        let place = format!("data before code outside of functions at {}", Address(code.start));
        let difference = Difference::new(Check::Gaps, Some(offset), place, "the same bytes", "others");
        findings.differs(difference);
    }
    let start = code.start + data as u64;
    let (before, after) = (&before[data..], &after[data..]);
    let pair = CodePair {
        check: Check::Gaps,
        images: &images,
        pages,
        range: Move { old_start: Address(start), new_start: NewAddress(start), size: before.len() as u64 },
        old: before,
        new: after,
        offset: offset + data as u64,
    };
    let mut counts = Counts::default();
    if let Some(mut difference) = pair.check(&mut counts) {
        difference.place = format!("{}, outside of functions", difference.place);
        findings.differs(difference);
    }
    let pieces = before.chunks(MAX_PIECE).zip((start..).step_by(MAX_PIECE));
    let naming = pieces
        .filter_map(|(piece, start)| Naming::new(addresses(piece, start).into_iter().map(Address).collect()));
    GapCode { instructions: counts.instructions, naming: naming.collect(), ..GapCode::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aarch64::NOP;

    #[test]
    fn only_padding_around_gap_code_is_free() {
        let (ret, call, load) = (0xd65f_03c0, 0x9400_0000, 0xf940_0109);
        let cases: [(&[u32], bool, Range<usize>); 7] = [
            (&[NOP, 0, ret], false, 2..3),
            (&[NOP, ret, NOP], true, 0..2),
            (&[load, ret, 0, NOP], false, 0..2),
            // A call may return: what follows it is not padding.
            (&[call, NOP], false, 0..2),
            // Padding between two pieces of code stays as it is.
            (&[ret, NOP, ret, 0], false, 0..3),
            (&[NOP, NOP], false, 2..2),
            (&[], false, 0..0),
        ];
        for (words, starts_section, code) in cases {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let found = code_of_gap(&bytes, 0x10, starts_section);
            let expected = code.start * 4..code.end * 4;
            assert!(found == expected || found.is_empty() && code.is_empty(), "{words:x?}: {found:?}");
        }
    }
}
