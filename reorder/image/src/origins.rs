//! Where functions come from, as far as the symbol table tells.
//!
//! Takes the function table; gives [`Origins`]: a source file and a scope (a namespace, class or module) for functions
//! that have one. They are hints: functions of one origin probably serve one purpose. Stripped images have none.

use std::fmt::Write;

use rustc_demangle::try_demangle;

use crate::elf::functions::ElfFunctions;
use crate::functions::FunctionTable;
use reorder_base::address::Address;

/// The origins of all functions. Equal numbers mean an equal origin; they ascend with the first position in the symbol
/// table (files) or the alphabet (scopes).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origins {
    /// The source file of each function.
    pub files: Vec<Option<u32>>,
    /// The scope of each function's name.
    pub scopes: Vec<Option<u32>>,
}

impl Origins {
    /// The origins of `functions`.
    #[must_use]
    pub fn collect(functions: &ElfFunctions<'_>) -> Self {
        Self { files: files(functions), scopes: scopes(&functions.table) }
    }
}

/// Local symbols follow the name of their file. Global ones do not, but linkers lay files out one after the
/// other: a function between two of one file belongs to it.
fn files(functions: &ElfFunctions<'_>) -> Vec<Option<u32>> {
    let mut files: Vec<Option<u32>> = vec![None; functions.table.len()];
    let mut count = 0;
    let mut current = None;
    for symbol in functions.symbols.iter() {
        if symbol.kind == object::elf::STT_FILE.0 {
            // A file symbol without a name precedes the linker's own symbols.
            current = (!symbol.name.is_empty()).then_some(count);
            count += 1;
        } else if symbol.binding == object::elf::STB_LOCAL.0
            && symbol.is_function()
            && let Some(function) = functions.table.starting_at(symbol.value)
        {
            files[function.0 as usize] = current;
        }
    }
    let mut before: Option<usize> = None;
    for index in 0..files.len() {
        if files[index].is_none() {
            continue;
        }
        if let Some(before) = before.filter(|&before| files[before] == files[index]) {
            let file = files[index];
            files[before..index].fill(file);
        }
        before = Some(index);
    }
    files
}

fn scopes(functions: &FunctionTable<'_>) -> Vec<Option<u32>> {
    // Some functions have many names, and a table may claim that all have all.
    const MAX_NAMES: usize = 8;
    let name_at = |start: Address| functions.names_at(start).take(MAX_NAMES).find_map(scope);
    let scopes: Vec<Option<Vec<u8>>> =
        functions.iter().map(|(_, function)| name_at(function.start)).collect();
    let mut known: Vec<&[u8]> = scopes.iter().flatten().map(Vec::as_slice).collect();
    known.sort_unstable();
    known.dedup();
    let number = |scope: &Vec<u8>| known.binary_search(&scope.as_slice()).ok().map(|number| number as u32);
    scopes.iter().map(|scope| scope.as_ref().and_then(number)).collect()
}

/// What encloses the function called `name`, written as the mangling writes it; none for names without a mangling.
fn scope(name: &[u8]) -> Option<Vec<u8>> {
    if let Some(readable) = std::str::from_utf8(name).ok().and_then(|name| try_demangle(name).ok()) {
        let mut path = ShortText::default();
        write!(path, "{readable:#}").ok()?;
        return enclosing_path(&path.0).map(|scope| scope.as_bytes().to_vec());
    }
    itanium_scope(name).map(<[u8]>::to_vec)
}

/// Text that takes no more than a name deserves: a few bytes of a mangled name can stand for a megabyte.
#[derive(Default)]
struct ShortText(String);

impl Write for ShortText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        const MAX_LENGTH: usize = 4096;
        if self.0.len() + text.len() > MAX_LENGTH {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// `path` up to its last `::` that stands in no angle brackets.
fn enclosing_path(path: &str) -> Option<&str> {
    let mut depth = 0i32;
    let bytes = path.as_bytes();
    for position in (1..bytes.len()).rev() {
        match bytes[position] {
            // `->` is no bracket.
            b'>' if bytes[position - 1] != b'-' => depth += 1,
            b'<' => depth -= 1,
            b':' if depth == 0 && bytes[position - 1] == b':' => return path.get(..position - 1),
            _ => {}
        }
    }
    None
}

/// The nested names before the function's own, or up to the first template's arguments.
///
/// Source: Itanium C++ ABI, "Mangling", nested names.
fn itanium_scope(name: &[u8]) -> Option<&[u8]> {
    let nested = name.strip_prefix(b"_ZN")?;
    let qualifiers =
        nested.iter().take_while(|byte| matches!(byte, b'r' | b'V' | b'K' | b'R' | b'O')).count();
    let nested = nested.get(qualifiers..)?;
    let (mut end, mut before_last) = (0, 0);
    loop {
        let rest = nested.get(end..)?;
        let length = if rest.starts_with(b"St") { 2 } else { source_name_length(rest) };
        if length == 0 {
            break;
        }
        before_last = end;
        end += length;
    }
    // `E` ends the list: the last name is the function's. Anything else is a constructor, an operator or arguments.
    let length = if nested.get(end) == Some(&b'E') { before_last } else { end };
    (length > 0).then(|| nested.get(..length)).flatten()
}

/// Length of a name with its length before it; zero if there is none.
fn source_name_length(text: &[u8]) -> usize {
    const MAX_DIGITS: usize = 5;
    let digits = text.iter().take(MAX_DIGITS).take_while(|byte| byte.is_ascii_digit()).count();
    let number = text.iter().take(digits).fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    if number == 0 { 0 } else { digits + number }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope_text(name: &str) -> Option<String> {
        scope(name.as_bytes()).map(|scope| String::from_utf8(scope).unwrap())
    }

    #[test]
    fn scopes_enclose_the_function() {
        for (name, expected) in [
            ("_ZN4llvm10TargetInfo7getSizeEv", Some("4llvm10TargetInfo")),
            ("_ZNK4llvm10TargetInfo7getSizeEv", Some("4llvm10TargetInfo")),
            ("_ZN4llvm10TargetInfoC1Ev", Some("4llvm10TargetInfo")),
            ("_ZNSt6vectorIiSaIiEE9push_backEOi", Some("St6vector")),
            ("_ZN4llvm3endEv", Some("4llvm")),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", Some("core::fmt::Formatter")),
            ("_RNvNtCs1234_7mycrate3foo3bar", Some("mycrate::foo")),
            ("_Z4freev", None),
            ("main", None),
            ("_ZN", None),
            ("_ZN99999999999aE", None),
            ("_ZN9ab", None),
        ] {
            assert_eq!(scope_text(name).as_deref(), expected, "{name}");
        }
        assert_eq!(enclosing_path("<a::B as c::D<e::F>>::g::<h::I>"), Some("<a::B as c::D<e::F>>::g"));
        assert_eq!(enclosing_path("<a::B>"), None);
    }
}
