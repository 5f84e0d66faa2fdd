//! Laws of placement, checked by the definition on random layouts.

use proptest::prelude::*;

use super::{Interval, MovableUnit, Placement, place};
use crate::random::Random;

/// A text section: what it is made of, in address order.
#[derive(Clone, Debug)]
enum Piece {
    Unit { size: u64, modulus: u64 },
    Padding(u64),
    Obstacle(u64),
}

fn piece() -> impl Strategy<Value = Piece> {
    prop_oneof![
        8 => (1u64..300).prop_map(|size| Piece::Unit { size, modulus: 16 }),
        2 => (1u64..100, 0u32..7).prop_map(|(size, shift)| Piece::Unit { size, modulus: 1 << shift }),
        1 => (1u64..64).prop_map(Piece::Padding),
        1 => (1u64..200).prop_map(Piece::Obstacle),
    ]
}

/// Lays the pieces out one after the other, units padded to 16 as compilers do.
fn lay_out(pieces: &[Piece]) -> (Vec<MovableUnit>, Vec<Interval>) {
    let (mut units, mut free) = (Vec::new(), Vec::<Interval>::new());
    let mut cursor = 0x1000u64;
    let mut cover = |start: u64, end: u64| match free.last_mut() {
        Some(last) if last.end == start => last.end = end,
        _ => free.push(Interval { start, end }),
    };
    for piece in pieces {
        let begin = cursor;
        match *piece {
            Piece::Unit { size, modulus } => {
                let start = if modulus == 16 { cursor.next_multiple_of(16) } else { cursor };
                cursor = start + size;
                units.push(MovableUnit { start, size, modulus, least_modulus: modulus.min(8) });
                cover(begin, cursor);
            }
            Piece::Padding(size) => {
                cursor += size;
                cover(begin, cursor);
            }
            Piece::Obstacle(size) => cursor += size,
        }
    }
    (units, free)
}

/// The same room, cut at the multiples of `page`, as where some pages are filled before others.
fn cut(free: &[Interval], page: u64) -> Vec<Interval> {
    let mut pieces = Vec::new();
    for interval in free {
        let mut start = interval.start;
        while start < interval.end {
            let end = interval.end.min((start / page + 1) * page);
            pieces.push(Interval { start, end });
            start = end;
        }
    }
    pieces
}

fn check(units: &[MovableUnit], free: &[Interval], placement: &Placement) {
    assert_eq!(placement.starts.len(), units.len());
    let mut ranges = Vec::new();
    for (index, (unit, &start)) in units.iter().zip(&placement.starts).enumerate() {
        let end = start + unit.size;
        assert_eq!(
            start % unit.least_modulus,
            unit.start % unit.least_modulus,
            "unit {index} lost its residue"
        );
        assert!(
            free.iter().any(|interval| interval.start <= start && end <= interval.end),
            "unit {index} at {start:#x} leaves the free space"
        );
        if placement.pinned.contains(&index) {
            assert_eq!(start, unit.start, "pinned unit {index} moved");
        }
        ranges.push((start, end));
    }
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "units overlap");
}

proptest! {
    #[test]
    fn units_stay_apart_inside_and_congruent(
        pieces in prop::collection::vec(piece(), 0..120),
        seed in any::<u64>(),
    ) {
        let (units, free) = lay_out(&pieces);
        let mut order: Vec<usize> = (0..units.len()).collect();
        Random::new(seed, &[]).shuffle(&mut order);
        let placement = place(&units, &order, &free);
        check(&units, &free, &placement);
        prop_assert_eq!(&placement, &place(&units, &order, &free));
    }

    #[test]
    fn units_permuted_in_their_intervals_keep_the_guarantees(
        pieces in prop::collection::vec(piece(), 0..120),
        seed in any::<u64>(),
        page in 16_u64..4096,
    ) {
        let (units, free) = lay_out(&pieces);
        let mut order: Vec<usize> = (0..units.len()).collect();
        Random::new(seed, &[]).shuffle(&mut order);
        let placement = super::by_interval::permute(&units, &order, &cut(&free, page));
        check(&units, &free, &placement);
    }

    #[test]
    fn present_order_changes_nothing(pieces in prop::collection::vec(piece(), 0..120)) {
        let (units, free) = lay_out(&pieces);
        let order: Vec<usize> = (0..units.len()).collect();
        let placement = place(&units, &order, &free);
        let old: Vec<u64> = units.iter().map(|unit| unit.start).collect();
        prop_assert_eq!(placement, Placement { starts: old, pinned: vec![] });
    }

    #[test]
    fn uniform_units_without_obstacles_come_exactly_in_order(
        sizes in prop::collection::vec(1u64..300, 1..80),
        seed in any::<u64>(),
    ) {
        let pieces: Vec<Piece> = sizes.iter().map(|&size| Piece::Unit { size, modulus: 16 }).collect();
        let (units, mut free) = lay_out(&pieces);
        // The last unit's padding belongs to the free space, as it does in a section that something follows.
        free[0].end = free[0].end.next_multiple_of(16);
        let mut order: Vec<usize> = (0..units.len()).collect();
        Random::new(seed, &[]).shuffle(&mut order);
        let placement = place(&units, &order, &free);
        check(&units, &free, &placement);
        prop_assert!(placement.pinned.is_empty());
        prop_assert!(order.windows(2).all(|pair| placement.starts[pair[0]] < placement.starts[pair[1]]));
    }

    #[test]
    fn malformed_orders_pin_what_they_do_not_name(
        pieces in prop::collection::vec(piece(), 0..60),
        order in prop::collection::vec(0usize..80, 0..80),
    ) {
        let (units, free) = lay_out(&pieces);
        let placement = place(&units, &order, &free);
        check(&units, &free, &placement);
        prop_assert!((0..units.len()).all(|unit| order.contains(&unit) || placement.pinned.contains(&unit)));
    }
}

#[test]
fn small_units_fill_what_large_ones_leave() {
    // The large unit does not fit before the obstacle at 0x100, the small one does.
    let units = [
        MovableUnit { start: 0, size: 100, modulus: 16, least_modulus: 16 },
        MovableUnit { start: 0x200, size: 200, modulus: 16, least_modulus: 16 },
        MovableUnit { start: 0x300, size: 9, modulus: 1, least_modulus: 1 },
    ];
    let free = [Interval { start: 0, end: 0x80 }, Interval { start: 0x200, end: 0x400 }];
    let placement = place(&units, &[1, 2, 0], &free);
    check(&units, &free, &placement);
    assert!(placement.starts[2] < 0x80, "looking ahead fills the first interval");
}

#[test]
fn hostile_numbers_do_not_overflow() {
    let units = [
        MovableUnit { start: u64::MAX - 10, size: 10, modulus: 16, least_modulus: 16 },
        MovableUnit { start: 7, size: u64::MAX, modulus: 1 << 63, least_modulus: 1 << 63 },
        MovableUnit { start: 0, size: 0, modulus: 0, least_modulus: 0 },
    ];
    let free = [Interval { start: 0, end: u64::MAX }];
    let placement = place(&units, &[1, 0, 2], &free);
    assert_eq!(placement.starts.len(), 3);
}

/// Units as compilers make them (a few large, most small; one in ten a misaligned cold part), with an obstacle
/// after every `spacing` units.
fn realistic(count: usize, spacing: usize) -> (Vec<MovableUnit>, Vec<Interval>) {
    let mut random = Random::new(1, &[]);
    let mut pieces = Vec::new();
    for index in 0..count {
        if index % spacing == spacing - 1 {
            pieces.push(Piece::Obstacle(16 * (1 + random.below(20))));
        }
        let scale = 1 << random.below(9);
        let size = 3 + random.below(16 * scale);
        let modulus = if index % 10 == 9 { 1 } else { 16 };
        pieces.push(Piece::Unit { size, modulus });
    }
    lay_out(&pieces)
}

#[test]
fn tight_images_with_many_obstacles_pin_few_units() {
    // These layouts have no spare space, so what one interval loses is missing in another.
    for (count, spacing) in [(6_000, 200), (6_000, 10), (130_000, 130), (130_000, 13)] {
        let (units, free) = realistic(count, spacing);
        let mut order: Vec<usize> = (0..units.len()).collect();
        Random::new(2, &[]).shuffle(&mut order);
        let placement = place(&units, &order, &free);
        let pinned = placement.pinned.len();
        let unaligned = (units.iter().zip(&placement.starts))
            .filter(|(unit, start)| **start % unit.modulus != unit.start % unit.modulus)
            .count();
        assert!(unaligned <= count / 16, "{unaligned} of {count} units, obstacles every {spacing}");
        assert!(pinned <= 5, "{pinned} of {count} units, obstacles every {spacing}");
    }
}

#[test]
fn room_before_strictly_aligned_units_is_used() {
    // Units of all remainders that keep what alignment they have, with hardly any padding.
    let mut units = Vec::new();
    let mut start = 0x1000_u64;
    for index in 0..600_u64 {
        let size = 16 * (index * 7 % 13 + 1);
        let own = (start & start.wrapping_neg()).min(64_u64);
        units.push(MovableUnit { start, size, modulus: own, least_modulus: own });
        start += size;
    }
    let free = [Interval { start: 0x1000, end: start + 256 }];
    let order: Vec<usize> = (0..600).map(|position| position * 271 % 600).collect();
    let placement = place(&units, &order, &free);
    assert!(placement.pinned.len() < 6, "{:?}", placement.pinned);
    let at = |position: usize| placement.starts[order[position]];
    let displaced = (0..540).filter(|&position| at(position) > at(position + 59)).count();
    assert!(displaced < 5, "{displaced}");
}

#[test]
fn text_cut_into_short_intervals_still_moves() {
    // Every other function stays, and no function may give up its alignment, as in programs at a fixed address.
    let mut random = Random::new(5, &[]);
    let (mut units, mut free, mut cursor) = (Vec::new(), Vec::new(), 0x1000u64);
    for _ in 0..4000 {
        let begin = cursor;
        let most = if random.below(20) == 0 { 40 } else { 2 };
        for _ in 0..=random.below(most) {
            let size = 1 + random.below(900);
            units.push(MovableUnit { start: cursor, size, modulus: 16, least_modulus: 16 });
            cursor = (cursor + size).next_multiple_of(16);
        }
        free.push(Interval { start: begin, end: cursor });
        cursor += 16 * (1 + random.below(40));
    }
    let mut order: Vec<usize> = (0..units.len()).collect();
    random.shuffle(&mut order);
    let placement = place(&units, &order, &free);
    check(&units, &free, &placement);
    let moved = units.iter().zip(&placement.starts).filter(|(unit, start)| unit.start != **start).count();
    assert!(moved > units.len() / 3, "{moved} of {} moved", units.len());
}

/// The only unit of large alignment stays and cuts the text in two rooms without a byte to spare, of which neither holds the
/// units of the other.
#[test]
fn rooms_without_slack_are_permuted_by_themselves() {
    let sizes = [48, 80, 112, 16, 176, 208, 240];
    let (mut units, mut free): (Vec<MovableUnit>, Vec<Interval>) = (Vec::new(), Vec::new());
    let mut cursor = 0x1000;
    for (index, &size) in sizes.iter().enumerate() {
        units.push(MovableUnit { start: cursor, size, modulus: 16, least_modulus: 16 });
        match free.last_mut().filter(|last| last.end == cursor) {
            Some(last) => last.end += size,
            None => free.push(Interval { start: cursor, end: cursor + size }),
        }
        cursor += size + if index == 3 { 32 } else { 0 };
    }
    let order: Vec<usize> = (0..units.len()).rev().collect();
    let placement = super::by_interval::permute(&units, &order, &free);
    check(&units, &free, &placement);
    assert!(placement.pinned.is_empty(), "{placement:?}");
    let second: u64 = 0x1000 + 48 + 80 + 112 + 16 + 32;
    assert_eq!(
        placement.starts,
        [0x1000 + 208, 0x1000 + 128, 0x1010, 0x1000, second + 448, second + 240, second]
    );
    let placement = place(&units, &order, &free);
    check(&units, &free, &placement);
    assert!(placement.pinned.len() <= units.len() / 2, "{placement:?}");
}
