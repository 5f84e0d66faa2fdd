//! Compares two records of one run: a profile's trace of names and a recorded trace of addresses.
//!
//! Takes both orders and the symbols of the recorded image; gives which functions of the profile were recorded and
//! how far the orders agree. Functions that share an address were folded into one, which is first executed only once: the
//! first of them takes part in the comparison of orders.

use std::collections::{BTreeMap, BTreeSet};

/// Addresses in the image, by symbol. Local symbols of one name have several addresses.
pub type Symbols = BTreeMap<String, BTreeSet<u64>>;

/// What the recorded trace says about the functions of the profile's trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Functions of the profile without a symbol in the image, in the profile's order.
    pub without_symbol: Vec<String>,
    /// Functions with a symbol that were recorded, in the profile's order.
    pub recorded: Vec<String>,
    /// Functions with a symbol that were not recorded, in the profile's order.
    pub missing: Vec<String>,
    /// Recorded functions at an address of their own or first of those at it, in the profile's order.
    pub ordered: Vec<String>,
    /// Ordered functions outside the longest common subsequence of both orders, in the profile's order.
    pub moved: Vec<String>,
    /// Of the `ordered.len() - 1` neighbours in the profile's order, how many the recorded trace has in that order.
    pub ordered_neighbours: usize,
}

impl Agreement {
    /// Functions of the profile that have a symbol in the image.
    pub fn with_symbol(&self) -> usize {
        self.recorded.len() + self.missing.len()
    }
}

/// Looks up `profile` (names, each once, in order of first execution) in `recorded` (addresses in the same order).
pub fn agreement(profile: &[String], recorded: &[u64], symbols: &Symbols) -> Agreement {
    let mut ranks: BTreeMap<u64, usize> = BTreeMap::new();
    for (rank, &address) in recorded.iter().enumerate() {
        ranks.entry(address).or_insert(rank);
    }
    let mut result = Agreement::default();
    let mut order = Vec::new();
    let mut taken = BTreeSet::new();
    for name in profile {
        match symbols.get(name) {
            None => result.without_symbol.push(name.clone()),
            Some(addresses) => match addresses.iter().filter_map(|address| ranks.get(address)).min() {
                Some(&rank) => {
                    result.recorded.push(name.clone());
                    if taken.insert(rank) {
                        result.ordered.push(name.clone());
                        order.push(rank);
                    }
                }
                None => result.missing.push(name.clone()),
            },
        }
    }
    result.ordered_neighbours = order.windows(2).filter(|pair| pair[0] < pair[1]).count();
    let kept = longest_ascending(&order);
    result.moved = (0..order.len())
        .filter(|position| kept.binary_search(position).is_err())
        .map(|position| result.ordered[position].clone())
        .collect();
    result
}

/// Positions, ascending, of a longest subsequence of `ranks` that never descends: patience sorting, O(n log n).
fn longest_ascending(ranks: &[usize]) -> Vec<usize> {
    // ends[n]: where the subsequence of n + 1 ranks with the smallest last rank ends.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(ranks.len());
    for (position, rank) in ranks.iter().enumerate() {
        let length = ends.partition_point(|&end| ranks[end] <= *rank);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        match ends.get_mut(length) {
            Some(end) => *end = position,
            None => ends.push(position),
        }
    }
    let mut subsequence: Vec<usize> =
        std::iter::successors(ends.last().copied(), |&position| before[position]).collect();
    subsequence.reverse();
    subsequence
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn symbols(pairs: &[(&str, u64)]) -> Symbols {
        let mut symbols = Symbols::new();
        for &(name, address) in pairs {
            symbols.entry(name.to_owned()).or_default().insert(address);
        }
        symbols
    }

    #[test]
    fn one_function_out_of_place_is_the_one_that_moved() {
        let symbols = symbols(&[("a", 1), ("b", 2), ("c", 3), ("d", 4), ("never", 9)]);
        let result = agreement(&names("a b inlined c never d"), &[2, 3, 4, 77, 1], &symbols);
        assert_eq!(result.without_symbol, ["inlined"]);
        assert_eq!(result.missing, ["never"]);
        assert_eq!(result.recorded, ["a", "b", "c", "d"]);
        assert_eq!(result.moved, ["a"]);
        assert_eq!(result.ordered_neighbours, 2);
        assert_eq!(result.with_symbol(), 5);
    }

    #[test]
    fn folded_and_duplicated_functions_count_once() {
        let symbols = symbols(&[("a", 1), ("folded", 1), ("b", 2), ("b", 5)]);
        let result = agreement(&names("a b folded"), &[1, 5, 2], &symbols);
        assert_eq!(result.recorded, ["a", "b", "folded"]);
        assert_eq!(result.ordered, ["a", "b"]);
        assert!(result.moved.is_empty());
        assert_eq!(result.ordered_neighbours, 1);
    }

    #[test]
    fn the_longest_ascending_subsequence_is_optimal() {
        // All sequences of six ranks below four, against all 64 subsets of each.
        for code in 0..4usize.pow(6) {
            let ranks: Vec<usize> = (0..6).map(|digit| code / 4usize.pow(digit) % 4).collect();
            let longest = (0..64u32)
                .map(|subset| (0..6).filter(|&at| subset & 1 << at != 0).map(|at| ranks[at]).collect())
                .filter(|chosen: &Vec<usize>| chosen.is_sorted())
                .map(|chosen| chosen.len())
                .max();
            let found = longest_ascending(&ranks);
            assert!(found.is_sorted() && found.iter().map(|&at| ranks[at]).is_sorted());
            assert_eq!(Some(found.len()), longest, "{ranks:?}");
        }
    }
}
