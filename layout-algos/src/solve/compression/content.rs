//! An order of units by content alone.

use std::collections::HashMap;

use rayon::prelude::*;

use super::partition::{Part, Partition};
use super::units::Unit;
use crate::control::Control;
use crate::problem::Rows;

/// The numbers of `units` in an order in which those with common hashes are close. Units without any keep their place among
/// their neighbours as far as these do.
pub(super) fn by_content(
    fingerprints: &Rows<u32>,
    units: &[Unit],
    seed: u64,
    control: &Control<'_>,
) -> Vec<usize> {
    let contents: Vec<Vec<u32>> = units.par_iter().map(|unit| content(fingerprints, unit)).collect();
    let (first, copies) = without_copies(&contents);
    let part = whole(&contents, &first);
    let order = Partition::new(seed, first.len(), control).run(part);
    let with_copies = |rank: u32| {
        let rank = rank as usize;
        std::iter::once(first[rank]).chain(copies[rank].iter().copied())
    };
    order.into_iter().flat_map(with_copies).collect()
}

/// The hashes of all functions of `unit`, ascending.
fn content(fingerprints: &Rows<u32>, unit: &Unit) -> Vec<u32> {
    let rows = unit.functions.iter().map(|function| fingerprints.row(function.index()));
    let mut hashes: Vec<u32> = rows.flatten().copied().collect();
    if unit.functions.len() > 1 {
        hashes.sort_unstable();
        hashes.dedup();
    }
    hashes
}

/// The first unit of each content, and by it all others with the same: what is equal needs no halving to be adjacent.
fn without_copies(contents: &[Vec<u32>]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let mut first_with: HashMap<&[u32], usize> = HashMap::new();
    let mut first = Vec::new();
    let mut copies: Vec<Vec<usize>> = Vec::new();
    for (unit, content) in contents.iter().enumerate() {
        let next = first.len();
        let number = if content.is_empty() { next } else { *first_with.entry(content).or_insert(next) };
        if number == next {
            first.push(unit);
            copies.push(Vec::new());
        } else {
            copies[number].push(unit);
        }
    }
    (first, copies)
}

/// The units `first` with the hashes that more than one of them has, but not more than half of them: neither kind says
/// which units belong together.
fn whole(contents: &[Vec<u32>], first: &[usize]) -> Part {
    let most = (first.len() / 2).max(2);
    let mut pairs: Vec<(u32, u32)> = first
        .par_iter()
        .enumerate()
        .flat_map_iter(|(rank, &unit)| contents[unit].iter().map(move |&hash| (hash, rank as u32)))
        .collect();
    pairs.par_sort_unstable();
    let mut part = Part { ranks: (0..first.len() as u32).collect(), ..Part::default() };
    let mut kept: Vec<(u32, u32)> = Vec::new();
    for same in pairs.chunk_by(|one, other| one.0 == other.0) {
        if (2..=most).contains(&same.len()) {
            kept.extend(same.iter().map(|&(_, rank)| (rank, part.piece_count)));
            part.piece_count += 1;
        }
    }
    drop(pairs);
    kept.par_sort_unstable();
    part.ends = vec![0; first.len()];
    for &(rank, _) in &kept {
        part.ends[rank as usize] += 1;
    }
    let mut end = 0;
    for count in &mut part.ends {
        end += *count;
        *count = end;
    }
    part.pieces = kept.into_iter().map(|(_, piece)| piece).collect();
    part
}
