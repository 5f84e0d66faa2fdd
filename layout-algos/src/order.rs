//! An order of all functions.

use crate::ids::FunctionId;

/// A permutation of all functions: position in the new layout → function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionOrder {
    functions: Vec<FunctionId>,
}

impl FunctionOrder {
    /// The order `functions`, if they are a permutation of `0..functions.len()`.
    #[must_use]
    pub fn of(functions: Vec<FunctionId>) -> Option<Self> {
        let mut seen = vec![false; functions.len()];
        for function in &functions {
            if std::mem::replace(seen.get_mut(function.index())?, true) {
                return None;
            }
        }
        Some(Self { functions })
    }

    /// The order the linker chose.
    #[must_use]
    pub fn link_order(count: u32) -> Self {
        Self { functions: (0..count).map(FunctionId).collect() }
    }

    /// `first`, then all other functions in link order. Repeated and unknown entries of `first` are ignored.
    #[must_use]
    pub fn with_rest(first: impl IntoIterator<Item = FunctionId>, count: u32) -> Self {
        let mut placed = vec![false; count as usize];
        let rest = (0..count).map(FunctionId);
        let functions = first
            .into_iter()
            .chain(rest)
            .filter(|function| {
                placed.get_mut(function.index()).is_some_and(|placed| !std::mem::replace(placed, true))
            })
            .collect();
        Self { functions }
    }

    /// Number of functions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there are no functions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The functions from the lowest address on.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = FunctionId> + '_ {
        self.functions.iter().copied()
    }

    /// The position of each function, by function.
    #[must_use]
    pub fn ranks(&self) -> Vec<u32> {
        let mut ranks = vec![0; self.functions.len()];
        for (rank, function) in self.functions.iter().enumerate() {
            ranks[function.index()] = rank as u32;
        }
        ranks
    }

    /// The order that undoes this one: if functions are renumbered by their new positions, it sorts them back.
    #[must_use]
    pub fn inverse(&self) -> Self {
        Self { functions: self.ranks().into_iter().map(FunctionId).collect() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    fn ids(indices: &[u32]) -> Vec<FunctionId> {
        indices.iter().map(|&index| FunctionId(index)).collect()
    }

    #[test]
    fn only_permutations_are_orders() {
        assert!(FunctionOrder::of(ids(&[2, 0, 1])).is_some());
        assert!(FunctionOrder::of(ids(&[0, 0])).is_none());
        assert!(FunctionOrder::of(ids(&[0, 2])).is_none());
    }

    #[test]
    fn the_rest_follows_in_link_order() {
        let order = FunctionOrder::with_rest(ids(&[3, 9, 1, 3]), 5);
        assert_eq!(order.iter().collect::<Vec<_>>(), ids(&[3, 1, 0, 2, 4]));
    }

    proptest! {
        #[test]
        fn the_inverse_of_the_inverse_is_the_order(count in 0u32..200, seed in any::<u64>()) {
            let mut functions: Vec<FunctionId> = (0..count).map(FunctionId).collect();
            Random::new(seed, &[]).shuffle(&mut functions);
            let order = FunctionOrder::of(functions).unwrap();
            let inverse = order.inverse();
            prop_assert_eq!(&inverse.inverse(), &order);
            let undone: Vec<FunctionId> = inverse.iter().map(|rank| order.functions[rank.index()]).collect();
            prop_assert_eq!(undone, (0..count).map(FunctionId).collect::<Vec<_>>());
        }
    }
}
