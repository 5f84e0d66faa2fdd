//! Finds an address among many sorted ones without a binary search over the whole list.

/// Divides the span of sorted addresses into about as many equal parts as there are addresses; a look-up is a binary search
/// in one part. Takes four bytes for each address. If a hostile file puts all addresses into one part, a look-up costs as
/// much as a binary search over all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressIndex {
    first: u64,
    /// Log2 of the bytes that a part spans.
    shift: u32,
    /// For each part, the number of addresses before it; then the number of all.
    before: Vec<u32>,
}

impl AddressIndex {
    /// Indexes `sorted`, of which there are fewer than 2³².
    #[must_use]
    pub fn new(sorted: impl ExactSizeIterator<Item = u64> + DoubleEndedIterator + Clone) -> Self {
        let count = sorted.len();
        let (Some(first), Some(last)) = (sorted.clone().next(), sorted.clone().next_back()) else {
            return Self::default();
        };
        let needed_bits = u64::BITS - last.wrapping_sub(first).leading_zeros();
        let shift = needed_bits.saturating_sub(count.ilog2());
        let parts = (last.wrapping_sub(first) >> shift) as usize + 1;
        let mut before = vec![0_u32; parts + 1];
        for address in sorted {
            before[(address.wrapping_sub(first) >> shift) as usize + 1] += 1;
        }
        for part in 0..parts {
            before[part + 1] += before[part];
        }
        Self { first, shift, before }
    }

    /// The number of addresses at or below `address`; `at` returns the address at a position.
    #[must_use]
    pub fn count_up_to(&self, address: u64, at: impl Fn(usize) -> u64) -> usize {
        let Some(distance) = address.checked_sub(self.first) else { return 0 };
        let part = (distance >> self.shift) as usize;
        let Some([from, to]) = self.before.get(part..).and_then(|rest| rest.first_chunk::<2>()) else {
            return self.before.last().map_or(0, |count| *count as usize);
        };
        let (mut low, mut high) = (*from as usize, *to as usize);
        while low < high {
            let middle = low.midpoint(high);
            match at(middle) <= address {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::AddressIndex;

    proptest::proptest! {
        #[test]
        fn counts_as_halving_does(
            mut addresses: Vec<u64>, spread in 0..64_u32, other: u64, chosen: proptest::sample::Index,
        ) {
            addresses.iter_mut().for_each(|address| *address >>= spread);
            addresses.sort_unstable();
            let index = AddressIndex::new(addresses.iter().copied());
            let near = (!addresses.is_empty()).then(|| addresses[chosen.index(addresses.len())]);
            let near = near.into_iter().flat_map(|near| [near.wrapping_sub(1), near, near.wrapping_add(1)]);
            for address in near.chain([0, other, other >> spread, u64::MAX]) {
                let expected = addresses.partition_point(|known| *known <= address);
                proptest::prop_assert_eq!(index.count_up_to(address, |at| addresses[at]), expected);
            }
        }
    }
}
