//! The random numbers of LLVM's balanced partitioning.
//!
//! The generator is MT19937 (Matsumoto, Nishimura, "Mersenne Twister", ACM TOMACS 1998), which the C++ standard fixes
//! bit by bit. How an integer becomes a number below 1 is up to the C++ library; here it is done as in libstdc++.

const LENGTH: usize = 624;
const SHIFT: usize = 397;

/// MT19937 with the seeding of the C++ standard.
pub(super) struct MersenneTwister {
    state: [u32; LENGTH],
    next: usize,
}

impl MersenneTwister {
    pub(super) fn new(seed: u32) -> Self {
        let mut state = [seed; LENGTH];
        for index in 1..LENGTH {
            let previous = state[index - 1];
            state[index] =
                1_812_433_253u32.wrapping_mul(previous ^ previous >> 30).wrapping_add(index as u32);
        }
        Self { state, next: LENGTH }
    }

    fn next_u32(&mut self) -> u32 {
        if self.next == LENGTH {
            self.twist();
        }
        let mut bits = self.state[self.next];
        self.next += 1;
        bits ^= bits >> 11;
        bits ^= bits << 7 & 0x9d2c_5680;
        bits ^= bits << 15 & 0xefc6_0000;
        bits ^ bits >> 18
    }

    /// A number from 0 up to, not including, 1. An integer that rounds up to 2³² becomes the number below 1.
    pub(super) fn below_one(&mut self) -> f32 {
        const RANGE: f32 = 4_294_967_296.0;
        (self.next_u32() as f32 / RANGE).min(1.0f32.next_down())
    }

    fn twist(&mut self) {
        for index in 0..LENGTH {
            let joined = self.state[index] & 0x8000_0000 | self.state[(index + 1) % LENGTH] & 0x7fff_ffff;
            let twisted = joined >> 1 ^ if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[index] = self.state[(index + SHIFT) % LENGTH] ^ twisted;
        }
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_standard_one() {
        // The C++ standard states the 10,000th number for the default seed.
        let mut random = MersenneTwister::new(5489);
        assert_eq!((0..10_000).map(|_| random.next_u32()).last(), Some(4_123_659_995));
    }

    #[test]
    fn numbers_stay_below_one() {
        let mut random = MersenneTwister::new(1);
        assert!((0..100_000).all(|_| (0.0..1.0).contains(&random.below_one())));
    }
}
