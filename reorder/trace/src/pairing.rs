//! Pairs each function of one build with the same function of another: by name, or by a digest of its code where a build
//! has no names.
//!
//! In: the functions of two images. Out: a [`Pairing`]. A pair is certain or left out: names and digests decide only where
//! exactly one function answers, and no function is the partner of two.

use std::collections::BTreeMap;

use reorder_image::code_digest::{FunctionDigest, FunctionDigests};
use reorder_image::functions::{FunctionIndex, FunctionTable};

use crate::matching::{Found, NameIndex, Spelling, Step};

/// The functions of an old build with their partners in a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairing {
    /// By function of the old build.
    pub partners: Vec<Option<FunctionIndex>>,
    /// How many pairs each way of finding them gave.
    pub steps: BTreeMap<Step, u64>,
}

impl Pairing {
    /// Pairs the functions of two builds.
    #[must_use]
    pub fn of(old: &FunctionTable<'_>, new: &FunctionTable<'_>) -> Self {
        let mut pairing = Self { partners: vec![None; old.len()], steps: BTreeMap::new() };
        let mut is_taken = vec![false; new.len()];
        let mut pair = |pairing: &mut Self, one: FunctionIndex, other: FunctionIndex, step: Step| {
            let partner = &mut pairing.partners[one.0 as usize];
            if partner.is_none() && !std::mem::replace(&mut is_taken[other.0 as usize], true) {
                *partner = Some(other);
                *pairing.steps.entry(step).or_default() += 1;
            }
        };
        let names = NameIndex::new(new);
        for (index, function) in old.iter() {
            for name in old.names_at(function.start) {
                let found = match names.find(name, Spelling::of(std::iter::empty())) {
                    Found::Ambiguous => names.find_sized(name, function.size(), new),
                    found => found,
                };
                if let Found::Function(partner, step) = found {
                    pair(&mut pairing, index, partner, step);
                }
            }
        }
        let is_left = |index: &FunctionIndex| pairing.partners[index.0 as usize].is_none();
        let left: Vec<FunctionIndex> = old.iter().map(|(index, _)| index).filter(is_left).collect();
        if left.is_empty() {
            return pairing;
        }
        // A digest that several functions of one build share identifies none of them.
        let old_digests = FunctionDigests::of(old, left);
        let new_digests = FunctionDigests::of_all(new);
        let whole = |digest: FunctionDigest| (digest.own, digest.with_called);
        for (one, other) in certain(&old_digests, &new_digests, whole) {
            pair(&mut pairing, one, other, Step::CodeAndCalled);
        }
        for (one, other) in certain(&old_digests, &new_digests, |digest| digest.own) {
            pair(&mut pairing, one, other, Step::Code);
        }
        pairing
    }

    /// The partner of a function of the old build.
    #[must_use]
    pub fn partner(&self, old: FunctionIndex) -> Option<FunctionIndex> {
        self.partners.get(old.0 as usize).copied().flatten()
    }

    /// How many functions of the old build have a partner.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.steps.values().sum()
    }
}

/// Functions with a key that one function of each build has.
fn certain<Key: Ord>(
    old: &FunctionDigests,
    new: &FunctionDigests,
    key: impl Fn(FunctionDigest) -> Key,
) -> Vec<(FunctionIndex, FunctionIndex)> {
    let (old, new) = (unique(old, &key), unique(new, &key));
    old.into_iter().filter_map(|(key, one)| Some((one?, (*new.get(&key)?)?))).collect()
}

fn unique<Key: Ord>(
    digests: &FunctionDigests,
    key: &impl Fn(FunctionDigest) -> Key,
) -> BTreeMap<Key, Option<FunctionIndex>> {
    let mut functions = BTreeMap::new();
    for (index, digest) in digests.iter() {
        functions.entry(key(digest)).and_modify(|known| *known = None).or_insert(Some(index));
    }
    functions
}
