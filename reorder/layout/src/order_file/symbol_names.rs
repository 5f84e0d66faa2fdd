//! The name by which a linker finds a function: one that no other function has, if there is one.

use reorder_base::address::Address;
use reorder_image::functions::{FunctionIndex, FunctionTable};

/// A hostile table may give one address a million names; the search stops here.
const NAMES_OF_A_FUNCTION: usize = 64;

/// All names of functions with the address each stands for, by name.
pub(super) struct UsableNames<'data> {
    by_name: Vec<(&'data [u8], Address)>,
}

impl<'data> UsableNames<'data> {
    pub(super) fn of(functions: &FunctionTable<'data>) -> Self {
        let mut by_name: Vec<_> = functions.names().iter().map(|&(address, name)| (name, address)).collect();
        by_name.sort_unstable();
        Self { by_name }
    }

    /// The first name at the function's address that no other address has, else the first one; and whether it
    /// is unique.
    pub(super) fn best(
        &self,
        functions: &FunctionTable<'data>,
        function: FunctionIndex,
    ) -> Option<(&'data [u8], bool)> {
        let mut first = None;
        for name in usable(functions, function) {
            if self.is_unique(name) {
                return Some((name, true));
            }
            first.get_or_insert(name);
        }
        first.map(|name| (name, false))
    }

    pub(super) fn has(&self, name: &[u8]) -> bool {
        let start = self.by_name.partition_point(|(other, _)| *other < name);
        self.by_name.get(start).is_some_and(|(other, _)| *other == name)
    }

    pub(super) fn is_unique(&self, name: &[u8]) -> bool {
        let start = self.by_name.partition_point(|(other, _)| *other < name);
        self.by_name.get(start + 1).is_none_or(|(next, _)| *next != name)
    }
}

/// The names of a function that a line can hold.
pub(super) fn usable<'table, 'data: 'table>(
    functions: &'table FunctionTable<'data>,
    function: FunctionIndex,
) -> impl Iterator<Item = &'data [u8]> + 'table {
    let names = functions.names_at(functions.get(function).start).take(NAMES_OF_A_FUNCTION);
    names.filter(|name| is_expressible(name))
}

/// Whether a line can hold the name: the reader trims blanks and takes `#` for a comment.
fn is_expressible(name: &[u8]) -> bool {
    !name.is_empty()
        && !name.starts_with(b"#")
        && !name.contains(&b'\n')
        && name.trim_ascii().len() == name.len()
}
