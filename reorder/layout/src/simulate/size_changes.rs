//! Which functions grew, shrank, came or went from one build to another.

use std::cmp::Reverse;

use reorder_image::functions::{Function, FunctionIndex, FunctionTable};
use reorder_trace::{Pairing, readable_name};
use serde::Serialize;

/// The functions of two builds by size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeChanges {
    /// Bytes of all functions of the old build.
    pub old_bytes: u64,
    /// Of the new one.
    pub new_bytes: u64,
    /// How many functions changed their size, came or went.
    pub changed: u64,
    /// Those that change most bytes, the largest change first.
    pub functions: Vec<SizeChange>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SizeChange {
    /// Readable; the address of a function without a name.
    pub name: String,
    /// Bytes in the old build; none for new functions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_bytes: Option<u64>,
    /// Bytes in the new build; none for those that are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_bytes: Option<u64>,
}

impl SizeChange {
    /// New bytes minus old ones.
    #[must_use]
    pub fn difference(&self) -> i64 {
        self.new_bytes.unwrap_or(0).cast_signed() - self.old_bytes.unwrap_or(0).cast_signed()
    }
}

impl SizeChanges {
    /// The changes from `old` to `new`; lists `most` functions at most.
    #[must_use]
    pub fn of(old: &FunctionTable<'_>, new: &FunctionTable<'_>, pairing: &Pairing, most: usize) -> Self {
        let mut is_new = vec![true; new.len()];
        let mut functions = Vec::new();
        let mut add = |name: String, old_bytes: Option<u64>, new_bytes: Option<u64>| {
            if old_bytes != new_bytes {
                functions.push(SizeChange { name, old_bytes, new_bytes });
            }
        };
        for (index, function) in old.iter() {
            let partner = pairing.partner(index);
            if let Some(partner) = partner {
                is_new[partner.0 as usize] = false;
            }
            let named = partner.map_or_else(|| name(old, index), |partner| name(new, partner));
            add(named, Some(function.size()), partner.map(|partner| new.get(partner).size()));
        }
        for (index, function) in new.iter().filter(|(index, _)| is_new[index.0 as usize]) {
            add(name(new, index), None, Some(function.size()));
        }
        let changed = functions.len() as u64;
        functions.sort_by(|one, other| {
            let key = |change: &SizeChange| Reverse(change.difference().unsigned_abs());
            (key(one), &one.name).cmp(&(key(other), &other.name))
        });
        functions.truncate(most);
        let bytes = |table: &FunctionTable<'_>| {
            table.iter().map(|(_, function): (FunctionIndex, &Function)| function.size()).sum()
        };
        Self { old_bytes: bytes(old), new_bytes: bytes(new), changed, functions }
    }
}

fn name(functions: &FunctionTable<'_>, index: FunctionIndex) -> String {
    readable_name(functions.display_name(index).as_bytes())
}
