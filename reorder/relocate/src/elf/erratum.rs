//! Cortex-A53 erratum 843419: a layout must not create the sequences that the linker took care to avoid.
//!
//! On such a processor an `ADRP` in the last two words of a page gives a wrong address if a certain sequence of loads and
//! stores follows. Linkers divert such sequences through veneers; a move may place others there. If the image has none, the
//! new layout must have none: two neighbours change places, which leaves all others where they are. An image that has such
//! sequences was not made for these processors.
//! Source: Arm, "Cortex-A53 MPCore Software Developers Errata Notice", 843419.

use std::ops::Range;

use layout_algos::placement::{Interval, MovableUnit};

use reorder_base::address::Address;
use reorder_image::decode::aarch64::{Operation, PAGE, WORD, decode};
use reorder_image::elf::code::CodeSpace;

/// From this offset to the end of its page, an `ADRP` is in danger.
const FIRST_IN_DANGER: u64 = PAGE - 2 * WORD;

/// Offsets in `code`, which begins at a word, of `ADRP` that would be in danger at the end of a page.
fn sensitive_offsets(code: &[u8]) -> Vec<u64> {
    let (words, _) = code.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    let starts = words.windows(3).enumerate().filter(|(at, window)| {
        is_adrp(window[0])
            && is_memory(window[1])
            && (uses_base(window[2], window[0])
                || !is_branch(window[2])
                    && words.get(at + 3).is_some_and(|fourth| uses_base(*fourth, window[0])))
    });
    starts.map(|(at, _)| at as u64 * WORD).collect()
}

fn is_adrp(word: u32) -> bool {
    word & 0x9f00_0000 == 0x9000_0000
}

fn is_memory(word: u32) -> bool {
    word >> 25 & 0b0101 == 0b0100
}

fn is_branch(word: u32) -> bool {
    !matches!(decode(word, Address(0)), Operation::Nop) && matches!(word >> 25 & 0xf, 0b1010 | 0b1011)
}

/// A load or store with an unsigned immediate whose base is what `adrp` writes.
fn uses_base(word: u32, adrp: u32) -> bool {
    word & 0x3b00_0000 == 0x3900_0000 && word >> 5 & 31 == adrp & 31
}

fn is_in_danger(start: u64, offsets: &[u64]) -> bool {
    offsets.iter().any(|offset| start.wrapping_add(*offset) % PAGE >= FIRST_IN_DANGER)
}

/// The places that each movable unit of an image must avoid.
pub(crate) struct Erratum {
    /// For each unit, offsets from its start.
    sensitive: Vec<Vec<u64>>,
}

impl Erratum {
    /// Looks through the units at `ranges`; `None` when the image already has a sequence in danger.
    #[must_use]
    pub(crate) fn to_avoid(code: &CodeSpace<'_>, ranges: &[Range<Address>]) -> Option<Self> {
        let offsets = |range: &Range<Address>| sensitive_offsets(code.bytes(range.clone()));
        let sensitive: Vec<Vec<u64>> = ranges.iter().map(offsets).collect();
        let is_clean =
            ranges.iter().zip(&sensitive).all(|(range, offsets)| !is_in_danger(range.start.0, offsets));
        is_clean.then_some(Self { sensitive })
    }

    /// Of these units alone, in this order.
    #[must_use]
    pub(crate) fn of(&self, units: impl Iterator<Item = usize>) -> Self {
        Self { sensitive: units.map(|unit| self.sensitive[unit].clone()).collect() }
    }

    /// Swaps neighbours until no unit is in danger; gives those for which that did not help, ascending.
    ///
    /// `starts` are the units' new places in `free`, which is sorted.
    #[must_use]
    pub(crate) fn settle(&self, units: &[MovableUnit], starts: &mut [u64], free: &[Interval]) -> Vec<usize> {
        let mut by_start: Vec<usize> = (0..units.len()).collect();
        by_start.sort_unstable_by_key(|&unit| starts[unit]);
        let mut in_danger = Vec::new();
        for position in 0..by_start.len() {
            let unit = by_start[position];
            if !is_in_danger(starts[unit], &self.sensitive[unit]) {
                continue;
            }
            let partners = [position.checked_sub(1), Some(position).filter(|at| at + 1 < by_start.len())];
            let swapped = partners.into_iter().flatten().any(|first| {
                let (low, high) = (by_start[first], by_start[first + 1]);
                let Some((new_low, new_high)) = self.exchanged(units, starts, free, low, high) else {
                    return false;
                };
                starts[low] = new_low;
                starts[high] = new_high;
                by_start.swap(first, first + 1);
                true
            });
            if !swapped {
                in_danger.push(unit);
            }
        }
        in_danger.sort_unstable();
        in_danger
    }

    /// The new starts of `low` and `high`, which are adjacent, if they can change places.
    fn exchanged(
        &self,
        units: &[MovableUnit],
        starts: &[u64],
        free: &[Interval],
        low: usize,
        high: usize,
    ) -> Option<(u64, u64)> {
        let aligned = |unit: &MovableUnit, from: u64| {
            let padding = unit.start.wrapping_sub(from) & unit.least_modulus.wrapping_sub(1);
            from.checked_add(padding)
        };
        let (begin, end) = (starts[low], starts[high].checked_add(units[high].size)?);
        // Something that does not move may lie between the two.
        let after = free.partition_point(|interval| interval.start <= begin);
        let is_free = free[..after].last().is_some_and(|interval| end <= interval.end);
        let new_high = aligned(&units[high], begin)?;
        let new_low = aligned(&units[low], new_high.checked_add(units[high].size)?)?;
        let fits = new_low.checked_add(units[low].size)? <= end;
        let is_safe =
            !is_in_danger(new_low, &self.sensitive[low]) && !is_in_danger(new_high, &self.sensitive[high]);
        (is_free && fits && is_safe).then_some((new_low, new_high))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `adrp x0, …; str x1, [x2]; ldr x3, [x0, #8]`
    const SEQUENCE: [u32; 3] = [0x9000_0000, 0xf900_0041, 0xf940_0403];
    const NOP: u32 = 0xd503_201f;

    fn offsets(words: &[u32]) -> Vec<u64> {
        sensitive_offsets(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
    }

    #[test]
    fn sequences_of_three_and_four_are_found() {
        let [adrp, store, load] = SEQUENCE;
        assert_eq!(offsets(&[NOP, adrp, store, load]), [4]);
        assert_eq!(offsets(&[adrp, store, NOP, load]), [0]);
        assert_eq!(offsets(&[adrp, store, 0x1400_0001, load]), [] as [u64; 0]);
        assert_eq!(offsets(&[adrp, NOP, load]), [] as [u64; 0]);
        assert_eq!(offsets(&[adrp, store, load & !(31 << 5) | 2 << 5]), [] as [u64; 0]);
    }

    proptest! {
        #[test]
        fn neighbours_change_places_without_touching_others(
            sizes in prop::collection::vec(1_u64..64, 2..40),
            sensitive in prop::collection::vec(any::<bool>(), 40),
            obstacle in 0_usize..40,
        ) {
            let mut units = Vec::new();
            let (mut cursor, mut free) = (0x1_0000_u64 - 0x400, Vec::new());
            let mut begin = cursor;
            for (index, size) in sizes.iter().enumerate() {
                if index == obstacle {
                    free.push(Interval { start: begin, end: cursor });
                    cursor += 4;
                    begin = cursor;
                }
                units.push(MovableUnit { start: cursor, size: size * 4, modulus: 4, least_modulus: 4 });
                cursor += size * 4;
            }
            free.push(Interval { start: begin, end: cursor });
            free.retain(|interval| interval.start < interval.end);
            let erratum = Erratum {
                sensitive: sensitive.iter().map(|is| if *is { vec![0] } else { Vec::new() }).collect(),
            };
            let old: Vec<u64> = units.iter().map(|unit| unit.start).collect();
            let mut starts = old.clone();
            let left = erratum.settle(&units, &mut starts, &free);
            let mut ranges: Vec<(u64, u64)> =
                starts.iter().zip(&units).map(|(start, unit)| (*start, start + unit.size)).collect();
            ranges.sort_unstable();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "no overlap");
            let is_inside = |range: &(u64, u64)| {
                free.iter().any(|interval| interval.start <= range.0 && range.1 <= interval.end)
            };
            prop_assert!(ranges.iter().all(is_inside));
            for (unit, start) in starts.iter().enumerate() {
                let is_in_danger = is_in_danger(*start, &erratum.sensitive[unit]);
                prop_assert!(!is_in_danger || left.contains(&unit));
            }
        }
    }
}
