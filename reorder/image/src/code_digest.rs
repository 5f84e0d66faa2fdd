//! Digests of functions by which they are found again in another build, where there is no name.
//!
//! Takes a [`FunctionTable`] that knows its code; gives a [`FunctionDigest`] for each function whose code is certain.
//! Guarantee: the digest depends neither on where the function is nor on where what it refers to is.

use std::collections::BTreeMap;
use std::fmt;

use rayon::prelude::*;
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::basic_blocks::Outline;
use crate::functions::{FunctionIndex, FunctionTable};
use reorder_base::address::Address;
use reorder_base::hexadecimal::decode;

/// The first eight bytes of the SHA-256 of a function's bytes, in which all fields are zero that state addresses outside
/// of the function ([`Outline::masked`]). So functions that did not change have the same digest in another build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeDigest(pub u64);

impl CodeDigest {
    /// The digest of a function.
    pub fn of(outline: &Outline) -> Self {
        Self::first_bytes(Sha256::digest(&outline.masked).into())
    }

    /// The digest that is written as these sixteen hexadecimal digits.
    pub fn read(word: &[u8]) -> Option<Self> {
        Some(Self(u64::from_be_bytes(decode(word)?.try_into().ok()?)))
    }

    fn first_bytes(digest: [u8; 32]) -> Self {
        Self(digest.iter().take(8).fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }
}

impl fmt::Display for CodeDigest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

impl Serialize for CodeDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What tells a function from others without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FunctionDigest {
    /// Of its own code.
    pub own: CodeDigest,
    /// Of its own code and that of the functions that it calls or jumps to, in the order of its instructions: tells
    /// instances of one generic function apart.
    pub with_called: CodeDigest,
}

/// The digests of some or all functions of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionDigests(BTreeMap<FunctionIndex, FunctionDigest>);

impl FunctionDigests {
    /// Those of all functions. All functions that are read are together no larger than the image.
    pub fn of_all(functions: &FunctionTable<'_>) -> Self {
        Self::of(functions, functions.iter().map(|(index, _)| index))
    }

    /// Those of `wanted`.
    pub fn of(functions: &FunctionTable<'_>, wanted: impl IntoIterator<Item = FunctionIndex>) -> Self {
        let is_distinct = distinct(functions);
        let mut wanted: Vec<FunctionIndex> = wanted.into_iter().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let mut bodies = read(functions, &is_distinct, &wanted);
        let mut called: Vec<FunctionIndex> = bodies
            .values()
            .flat_map(|body| &body.called)
            .filter_map(|target| functions.starting_at(*target))
            .filter(|target| !bodies.contains_key(target))
            .collect();
        called.sort_unstable();
        called.dedup();
        bodies.extend(read(functions, &is_distinct, &called));
        let digest = |index: &FunctionIndex| {
            let body = bodies.get(index)?;
            let mut state = Sha256::new_with_prefix(body.own.0.to_be_bytes());
            for target in &body.called {
                let known = functions.starting_at(*target).and_then(|target| bodies.get(&target));
                state.update(known.map_or(0, |known| known.own.0).to_be_bytes());
            }
            let with_called = CodeDigest::first_bytes(state.finalize().into());
            Some((*index, FunctionDigest { own: body.own, with_called }))
        };
        Self(wanted.iter().filter_map(digest).collect())
    }

    /// The digest of one function, if its code is certain.
    pub fn get(&self, index: FunctionIndex) -> Option<FunctionDigest> {
        self.0.get(&index).copied()
    }

    /// All of them, in address order.
    pub fn iter(&self) -> impl Iterator<Item = (FunctionIndex, FunctionDigest)> + '_ {
        self.0.iter().map(|(index, digest)| (*index, *digest))
    }
}

struct Body {
    own: CodeDigest,
    called: Vec<Address>,
}

fn read(
    functions: &FunctionTable<'_>,
    is_distinct: &[bool],
    wanted: &[FunctionIndex],
) -> BTreeMap<FunctionIndex, Body> {
    let body = |index: &FunctionIndex| {
        is_distinct.get(index.0 as usize).filter(|is_distinct| **is_distinct)?;
        let outline = functions.outline(*index)?;
        Some((*index, Body { own: CodeDigest::of(&outline), called: outline.called }))
    };
    wanted.par_iter().filter_map(body).collect()
}

/// For each function, whether it shares no byte with another. Where unwind entries tell the functions these alone count, as
/// a stripped image has no others.
fn distinct(functions: &FunctionTable<'_>) -> Vec<bool> {
    let has_unwind_entries = functions.iter().any(|(_, function)| function.has_unwind_entry);
    let mut is_distinct = vec![false; functions.len()];
    // The one before it, and the farthest end of all before that.
    let mut last: Option<usize> = None;
    let mut end = Address(0);
    for (index, function) in
        functions.iter().filter(|(_, function)| function.has_unwind_entry || !has_unwind_entries)
    {
        let index = index.0 as usize;
        is_distinct[index] = function.start >= end;
        if let Some(last) = last.filter(|_| function.start < end) {
            is_distinct[last] = false;
        }
        end = end.max(function.end);
        last = Some(index);
    }
    is_distinct
}
