//! Samples are the same however the stream was divided, and fair.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use layout_algos::sample::{Identity, Priority, Sample};
use proptest::prelude::*;

type Item = (u128, u64);

fn sample(capacity: usize, seed: u64, items: &[Item]) -> Sample<u64> {
    let mut sample = Sample::new(capacity, seed);
    for &(identity, weight) in items {
        sample.insert(Identity(identity), weight, identity as u64);
    }
    sample
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    // Few identities, so that repetitions and items with two weights occur.
    prop::collection::vec((0u128..40, prop_oneof![Just(1u64), 0u64..1000, Just(u64::MAX)]), 0..60)
}

proptest! {
    #[test]
    fn merging_is_associative_commutative_and_idempotent(
        parts in prop::array::uniform3(items()), capacity in 0usize..20, seed in any::<u64>()
    ) {
        let [first, second, third] = parts.map(|part| sample(capacity, seed, &part));
        let merge = |left: &Sample<u64>, right: &Sample<u64>| left.clone().merge(right.clone()).unwrap();
        prop_assert_eq!(merge(&merge(&first, &second), &third), merge(&first, &merge(&second, &third)));
        prop_assert_eq!(merge(&first, &second), merge(&second, &first));
        prop_assert_eq!(merge(&first, &first), first.clone());
        prop_assert_eq!(merge(&first, &sample(capacity, seed, &[])), first);
    }

    #[test]
    fn any_order_and_grouping_gives_what_one_pass_gives(
        (whole, shuffled) in items().prop_flat_map(|items| (Just(items.clone()), Just(items).prop_shuffle())),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        capacity in 0usize..20, seed in any::<u64>(),
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(shuffled.len() + 1)).collect();
        cuts.extend([0, shuffled.len()]);
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|pair| sample(capacity, seed, &shuffled[pair[0]..pair[1]]));
        let merged = parts.reduce(|left, right| right.merge(left).unwrap()).unwrap();
        prop_assert_eq!(merged, sample(capacity, seed, &whole));
    }

    #[test]
    fn what_is_kept_is_what_sorting_all_items_gives(items in items(), capacity in 0usize..20, seed in any::<u64>()) {
        let mut all: Vec<(Priority, u128, u64)> = items
            .iter()
            .filter_map(|&(identity, weight)| Some((Priority::of(seed, Identity(identity), weight)?, identity, weight)))
            .collect();
        all.sort_unstable();
        all.dedup();
        let kept = sample(capacity, seed, &items);
        let expected: Vec<_> = all.iter().take(capacity).map(|&(_, identity, weight)| (identity, weight)).collect();
        prop_assert_eq!(kept.iter().map(|drawn| (drawn.identity.0, drawn.weight)).collect::<Vec<_>>(), expected);
        prop_assert_eq!(kept.threshold(), all.get(capacity).map(|item| item.0));
        prop_assert_eq!(Sample::<u64>::new(capacity, seed).merge(kept.clone()), Some(kept.clone()));
        prop_assert_eq!(sample(capacity, seed ^ 1, &[]).merge(kept), None);
    }
}

/// 20,000 samples of 10 out of 100 equal items: each item is drawn 2,000 times but for chance.
#[test]
fn equal_items_are_drawn_equally_often() {
    const SEEDS: u64 = 20_000;
    let items: Vec<Item> = (0..100).map(|identity| (identity, 1)).collect();
    let mut drawn = [0u64; 100];
    for seed in 0..SEEDS {
        sample(10, seed, &items).iter().for_each(|item| drawn[item.identity.0 as usize] += 1);
    }
    let expected = SEEDS as f64 / 10.0;
    let chi_square: f64 = drawn.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
    // 99 degrees of freedom, less for drawing without replacement (factor 1 - 10/100): exceeded once in 10,000 by chance
    // at 161. The seeds are fixed, so this passes always or never.
    assert!(chi_square < 161.0, "chi-square {chi_square}");
    assert!(chi_square > 40.0, "suspiciously even: chi-square {chi_square}");
}

/// Consecutive identities under one seed must not be related either.
#[test]
fn neighbouring_identities_are_unrelated() {
    let mut buckets = [0u64; 64];
    for identity in 0..64_000u128 {
        buckets[(Priority::of(7, Identity(identity), 1).unwrap().0 >> 122) as usize] += 1;
    }
    let chi_square: f64 = buckets.iter().map(|&count| (count as f64 - 1000.0).powi(2) / 1000.0).sum();
    // 63 degrees of freedom: exceeded once in 10,000 by chance at 114.
    assert!(chi_square < 114.0, "chi-square {chi_square}");
}

/// The sum of what drawn items stand for estimates the sum of all weights without bias, whatever share is drawn.
#[test]
fn drawn_items_stand_for_the_whole() {
    const SEEDS: u64 = 2_000;
    let equal: Vec<Item> = (0..200).map(|identity| (identity, 1)).collect();
    let uneven: Vec<Item> = (0..200).map(|identity| (identity, 1 + (identity as u64 % 7).pow(3))).collect();
    for items in [equal, uneven] {
        let total: u64 = items.iter().map(|item| item.1).sum();
        for capacity in [20, 100, 150, 198] {
            let sum = |seed| sample(capacity, seed, &items).iter().map(|item| item.stands_for).sum::<f64>();
            let relative = (0..SEEDS).map(sum).sum::<f64>() / SEEDS as f64 / total as f64;
            assert!((relative - 1.0).abs() < 0.02, "{relative} times the sum of weights, {capacity} of 200");
        }
    }
}
