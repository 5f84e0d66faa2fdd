//! Names of one image's functions, to be found exactly or by their root.
//!
//! Optimisers rename local functions per build (`helper.llvm.8123`); the root `helper` survives. A name that
//! belongs to several functions finds none of them: a wrong function in a trace is worse than a missing one.

use crate::image::functions::{FunctionIndex, FunctionTable};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// This function has exactly this name.
    Exact(FunctionIndex),
    /// This function alone has a name with the same root.
    ByRoot(FunctionIndex),
    /// Several functions have it.
    Ambiguous,
    /// No function has it.
    Nowhere,
}

/// Sorted by name, then function, without repetitions.
type SortedNames<'data> = Vec<(&'data [u8], FunctionIndex)>;

/// Function names of one image in two orders.
pub(crate) struct NameIndex<'data> {
    exact: SortedNames<'data>,
    roots: SortedNames<'data>,
}

impl<'data> NameIndex<'data> {
    /// Indexes all names that stand at a function's start.
    pub(crate) fn new(functions: &FunctionTable<'data>) -> Self {
        let mut exact: SortedNames<'data> = functions
            .names()
            .iter()
            .filter_map(|&(address, name)| Some((name, functions.starting_at(address)?)))
            .collect();
        let mut roots: SortedNames<'data> =
            exact.iter().map(|&(name, function)| (root_name(name), function)).collect();
        for names in [&mut exact, &mut roots] {
            names.sort_unstable();
            names.dedup();
        }
        Self { exact, roots }
    }

    /// What `name` stands for here.
    pub(crate) fn find(&self, name: &[u8]) -> Found {
        match unique(&self.exact, name) {
            Found::Nowhere => match unique(&self.roots, root_name(name)) {
                Found::Exact(function) => Found::ByRoot(function),
                other => other,
            },
            found => found,
        }
    }
}

fn unique(names: &SortedNames<'_>, name: &[u8]) -> Found {
    let first = names.partition_point(|(other, _)| *other < name);
    let mut same = names[first..].iter().take_while(|(other, _)| *other == name);
    match (same.next(), same.next()) {
        (Some((_, function)), None) => Found::Exact(*function),
        (Some(_), Some(_)) => Found::Ambiguous,
        (None, _) => Found::Nowhere,
    }
}

/// `name` without the suffixes that differ from build to build: `.llvm.N`, `.__uniq.N`, `.lto_priv.N`.
///
/// Suffixes that name a part (`.cold`, `.part.0`) stay: the part is another function.
pub fn root_name(name: &[u8]) -> &[u8] {
    let mut root = name;
    while let Some(shorter) = ["llvm", "__uniq", "lto_priv"].iter().find_map(|tag| without_suffix(root, tag))
    {
        root = shorter;
    }
    root
}

fn without_suffix<'name>(name: &'name [u8], tag: &str) -> Option<&'name [u8]> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let stem =
        name[..name.len() - digits].strip_suffix(b".")?.strip_suffix(tag.as_bytes())?.strip_suffix(b".")?;
    (digits > 0 && !stem.is_empty()).then_some(stem)
}
