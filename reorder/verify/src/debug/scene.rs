//! Both images with what all comparisons of debug information share: where padding is, and how much work is justified.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use super::coverage::{Range, union};
use crate::elf::gaps::code_of_gap;
use crate::elf::pair::ImagePair;
use crate::elf::view::ElfView;
use crate::moves::AddressMoves;
use crate::padding::{jumped_over, padding_length};

/// The pair under judgement.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) pair: ImagePair<'a>,
    pub(super) paddings: &'a Paddings,
    pub(super) budget: &'a Budget,
}

impl<'a> Deref for Scene<'a> {
    type Target = ImagePair<'a>;

    fn deref(&self) -> &Self::Target {
        &self.pair
    }
}

/// Padding of the old image: after each function, and between code of no function and the next function.
#[derive(Debug, Default)]
pub(super) struct Paddings {
    /// Sorted and disjoint.
    runs: Vec<Range>,
}

impl Paddings {
    /// Of the old image `image`, in which `moves` are the functions.
    pub(super) fn of(image: &ElfView<'_>, moves: &AddressMoves) -> Self {
        let mut runs: Vec<Range> = Vec::new();
        for section in image.code_sections() {
            let first = moves.as_slice().partition_point(|found| found.old_end().0 <= section.address);
            let functions =
                moves.as_slice()[first..].iter().map(|found| (found.old_start.0, found.old_end().0));
            let mut position = section.address;
            for (start, end) in
                functions.take_while(|found| found.0 < section.end()).chain([(section.end(), 0)])
            {
                let gap = section.at(position, start.saturating_sub(position)).unwrap_or_default();
                let length = padding_length(image.processor, gap, position) as u64;
                match runs.last_mut().filter(|_| length > 0) {
                    // Between them is a function without instructions.
                    Some(last) if last.1 == position => last.1 = position.saturating_add(length),
                    _ if length > 0 => runs.push((position, position.saturating_add(length))),
                    _ => {}
                }
                let code = code_of_gap(image.processor, gap, position, position == section.address);
                // Zeros after code may be the end of a table.
                if !code.is_empty() && gap.get(code.end).is_some_and(|&byte| byte != 0) {
                    runs.push((position.saturating_add(code.end as u64), start));
                }
                // Assemblers put a jump before long padding, which stays as code of no function.
                let rest = gap.get(length as usize..).unwrap_or_default();
                if let Some((jump, padding)) = jumped_over(image.processor, rest, position + length) {
                    let start = position + length + jump;
                    runs.push((start, start + padding));
                }
                position = position.max(end);
            }
        }
        Self { runs: union(runs) }
    }

    /// Whether all bytes of an old range are padding.
    pub(super) fn hold(&self, (start, end): Range) -> bool {
        let after = self.runs.partition_point(|run| run.0 <= start);
        self.runs[..after].last().is_some_and(|run| start < run.1 && end <= run.1)
    }
}

/// How many list entries may be examined. Lists may overlap, so that a few bytes hold very many entries.
#[derive(Debug)]
pub(super) struct Budget {
    left: AtomicU64,
}

impl Budget {
    /// For images with so many `bytes` of debug information.
    pub(super) fn for_bytes(bytes: u64) -> Self {
        /// An entry takes at least two bytes, and compilers share few lists.
        const ENTRIES_FOR_A_BYTE: u64 = 8;
        Self { left: AtomicU64::new(bytes.saturating_mul(ENTRIES_FOR_A_BYTE).saturating_add(1)) }
    }

    /// Counts one entry; `false` when there were too many and the comparison must stop.
    pub(super) fn take(&self) -> bool {
        let take = |left: u64| Some(left.saturating_sub(1));
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok_and(|left| left > 1)
    }

    /// Whether there were too many.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 0
    }
}
