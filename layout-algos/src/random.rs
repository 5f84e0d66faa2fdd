//! A small seeded generator, the same on every system.
//!
//! Each user names its own stream by a path of numbers (for instance the node of a recursion), so that results
//! do not depend on the order in which parts of the work run. Source of the step: SplitMix64 (Steele, Lea,
//! Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). Not for secrets.

/// The golden ratio in 64 bits: the increment of SplitMix64.
const INCREMENT: u64 = 0x9e37_79b9_7f4a_7c15;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of `seed` and `path`. Streams of different paths are unrelated.
    #[must_use]
    pub fn new(seed: u64, path: &[u64]) -> Self {
        let state =
            path.iter().fold(mix(seed), |state, &step| mix(state.wrapping_add(INCREMENT) ^ mix(step)));
        Self { state }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(INCREMENT);
        mix(self.state)
    }

    /// A number below `bound`; 0 when `bound` is 0. The bias is below bound / 2⁶⁴.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Permutes `items`, every permutation being equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end as u64 + 1) as usize);
        }
    }
}

fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn the_stream_is_the_published_one() {
        // A zero state gives the reference implementation's first outputs for seed 0.
        let mut random = Random { state: 0 };
        assert_eq!(random.next_u64(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next_u64(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn streams_differ_by_seed_and_path() {
        let first = |seed, path: &[u64]| Random::new(seed, path).next_u64();
        let all = [
            first(1, &[]),
            first(2, &[]),
            first(1, &[0]),
            first(1, &[1]),
            first(1, &[0, 1]),
            first(1, &[1, 0]),
        ];
        for (index, value) in all.iter().enumerate() {
            assert!(!all[index + 1..].contains(value));
        }
    }

    #[test]
    fn numbers_below_a_bound_cover_it_evenly() {
        let mut random = Random::new(7, &[]);
        let mut counts = [0u32; 10];
        for _ in 0..10_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn shuffling_permutes() {
        let mut items: Vec<usize> = (0..100).collect();
        Random::new(3, &[]).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
