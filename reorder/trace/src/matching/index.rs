//! Names of one image's functions, found by any spelling.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::OnceLock;

use super::spelling::{Spelling, base_name, root_name, rust_path, split_file, split_file_before_colon};
use super::{Found, Step};
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// The function of each key, or that there are several.
pub(super) struct Unique<Key>(HashMap<Key, Option<FunctionIndex>>);

impl<Key: Eq + Hash> Unique<Key> {
    pub(super) fn of(pairs: impl Iterator<Item = (Key, FunctionIndex)>) -> Self {
        let mut functions = HashMap::new();
        for (key, function) in pairs {
            functions
                .entry(key)
                .and_modify(|known: &mut Option<FunctionIndex>| *known = known.filter(|it| *it == function))
                .or_insert(Some(function));
        }
        Self(functions)
    }

    pub(super) fn find<Query: Eq + Hash + ?Sized>(&self, key: &Query, step: Step) -> Found
    where
        Key: std::borrow::Borrow<Query>,
    {
        match self.0.get(key) {
            Some(Some(function)) => Found::Function(*function, step),
            Some(None) => Found::Ambiguous,
            None => Found::Nowhere,
        }
    }
}

/// Function names of one image.
pub struct NameIndex<'data> {
    names: Vec<(&'data [u8], FunctionIndex)>,
    exact: Unique<&'data [u8]>,
    roots: Unique<&'data [u8]>,
    /// Local functions by name and the last component of their source file.
    in_files: Unique<(&'data [u8], &'data [u8])>,
    locals: HashSet<FunctionIndex>,
    /// By name and size; holds only names that several functions have.
    sized: OnceLock<Unique<(&'data [u8], u64)>>,
    /// Made at the first request: demangling all names pays only when another lookup failed.
    rust_paths: OnceLock<Unique<String>>,
}

impl<'data> NameIndex<'data> {
    /// Indexes all names at function starts.
    pub fn new(functions: &FunctionTable<'data>) -> Self {
        let names: Vec<_> = functions
            .names()
            .iter()
            .filter_map(|&(address, name)| Some((name, functions.starting_at(address)?)))
            .collect();
        let locals = || functions.locals().filter(|(_, local)| !local.file.is_empty());
        Self {
            exact: Unique::of(names.iter().copied()),
            roots: Unique::of(names.iter().map(|&(name, function)| (root_name(name), function))),
            in_files: Unique::of(
                locals().map(|(function, local)| ((local.name, base_name(local.file)), function)),
            ),
            locals: locals().map(|(function, _)| function).collect(),
            sized: OnceLock::new(),
            rust_paths: OnceLock::new(),
            names,
        }
    }

    /// All names with their functions.
    pub(super) fn names(&self) -> &[(&'data [u8], FunctionIndex)] {
        &self.names
    }

    /// What `name` stands for here, in a trace that spells names like this.
    pub fn find(&self, name: &[u8], spelling: Spelling) -> Found {
        // Symbols written after `\1` are meant literally.
        let name = name.strip_prefix(b"\x01").unwrap_or(name);
        let exact = self.exact.find(name, Step::Name);
        if exact != Found::Nowhere {
            return exact;
        }
        if let Some((file, bare)) = split_file(name) {
            return self.find_local(file, bare, spelling);
        }
        match self.find_respelled(name, spelling) {
            Found::Nowhere => split_file_before_colon(name)
                .map_or(Found::Nowhere, |(file, bare)| self.find_local(file, bare, spelling)),
            found => found,
        }
    }

    /// The one function of several called `name` that has this size; `functions` are those of the index. Instances of one
    /// generic function in many objects share their names, and most differ in size.
    pub(crate) fn find_sized(&self, name: &[u8], size: u64, functions: &FunctionTable<'_>) -> Found {
        let name = name.strip_prefix(b"\x01").unwrap_or(name);
        let sized = self.sized.get_or_init(|| {
            let key = |&(name, function): &(&'data [u8], FunctionIndex)| {
                ((name, functions.get(function).size()), function)
            };
            Unique::of(self.names.iter().map(key))
        });
        match sized.find(&(name, size), Step::Size) {
            // It is its namesakes that make the name ambiguous, whatever their size.
            Found::Nowhere => Found::Ambiguous,
            found => found,
        }
    }

    /// Only the last component of the file counts: its path depends on how the build was started.
    fn find_local(&self, file: &[u8], name: &[u8], spelling: Spelling) -> Found {
        let in_file = || self.in_files.find(&(name, base_name(file)), Step::SourceFile);
        match self.exact.find(name, Step::Name) {
            Found::Ambiguous => in_file(),
            Found::Nowhere => self.find_respelled(name, spelling),
            Found::Function(function, _) => {
                let is_elsewhere = self.locals.contains(&function) && in_file() == Found::Nowhere;
                Found::Function(function, if is_elsewhere { Step::OtherFile } else { Step::Name })
            }
        }
    }

    fn find_respelled(&self, name: &[u8], spelling: Spelling) -> Found {
        let without = name.strip_prefix(b"_").filter(|_| spelling == Spelling::MachO);
        let attempts = [
            without.map_or(Found::Nowhere, |name| self.exact.find(name, Step::Underscore)),
            self.roots.find(root_name(name), Step::Suffix),
            without.map_or(Found::Nowhere, |name| self.roots.find(root_name(name), Step::Suffix)),
        ];
        let found = attempts.into_iter().find(|found| *found != Found::Nowhere);
        found.unwrap_or_else(|| self.find_rust(without.unwrap_or(name)))
    }

    fn find_rust(&self, name: &[u8]) -> Found {
        let Some(path) = rust_path(name) else { return Found::Nowhere };
        let paths = self.rust_paths.get_or_init(|| {
            Unique::of(self.names.iter().filter_map(|&(name, function)| Some((rust_path(name)?, function))))
        });
        paths.find(path.as_str(), Step::RustPath)
    }
}
