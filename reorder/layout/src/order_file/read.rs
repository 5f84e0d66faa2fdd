//! Reads an order file: a symbol per line, or an address for functions without one.
//!
//! In: the file's bytes and an image's functions. Out: the listed functions, each once, and an account of the
//! lines that name none. Lines: `symbol`, `0xADDRESS`, `function@0xADDRESS`, `file.c:symbol` for local functions;
//! lines that start with `#` are comments, of which `# lines NUMBER` says how many others there are. Any bytes are a valid
//! order file: an unknown line is counted, because order files outlive builds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::lld::LINES;
use reorder_base::address::Address;
use reorder_base::numbers::prefixed_hexadecimal;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_trace::{Found, NameIndex, Spelling, Step};

/// How many lines that name no function are listed.
const EXAMPLES: usize = 10;

/// What an order file asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedOrder {
    /// The functions it lists, each once, in its order.
    pub functions: Vec<FunctionIndex>,
    /// How many of its lines were found.
    pub coverage: OrderCoverage,
}

/// An account of all lines that are not comments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrderCoverage {
    /// Lines that should name a function.
    pub lines: usize,
    /// Found, by what decided.
    pub by: BTreeMap<Step, usize>,
    /// Name a function that an earlier line names already.
    pub duplicate: usize,
    /// Names that several functions have.
    pub ambiguous: usize,
    /// No such function.
    pub unknown: usize,
    /// Lines that a comment says there are, where another number is: the file was cut or edited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stated_lines: Option<usize>,
    /// The first few lines that are ambiguous or unknown.
    pub examples: Vec<String>,
}

impl OrderCoverage {
    /// Lines for which a function was found, repeated ones included.
    #[must_use]
    pub fn found(&self) -> usize {
        self.by.values().sum()
    }
}

/// Finds the functions that the lines of `bytes` name.
#[must_use]
pub fn read(bytes: &[u8], functions: &FunctionTable<'_>) -> ListedOrder {
    let names = NameIndex::new(functions);
    let mut seen = vec![false; functions.len()];
    let mut listed = ListedOrder::default();
    let coverage = &mut listed.coverage;
    let mut stated_lines = None;
    for line in bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii) {
        if let Some(comment) = line.strip_prefix(b"#") {
            stated_lines = stated_lines.or_else(|| line_count(comment));
            continue;
        }
        if line.is_empty() {
            continue;
        }
        coverage.lines += 1;
        let function = match find(line, &names, functions) {
            Found::Function(function, step) => {
                *coverage.by.entry(step).or_default() += 1;
                Some(function)
            }
            Found::Ambiguous => {
                coverage.ambiguous += 1;
                None
            }
            Found::Nowhere => {
                coverage.unknown += 1;
                None
            }
        };
        match function {
            Some(function) if std::mem::replace(&mut seen[function.0 as usize], true) => {
                coverage.duplicate += 1;
            }
            Some(function) => listed.functions.push(function),
            None if coverage.examples.len() < EXAMPLES => {
                coverage.examples.push(String::from_utf8_lossy(line).into_owned());
            }
            None => {}
        }
    }
    // A line without its end may be half a name.
    let is_whole = |stated: &usize| *stated == coverage.lines && bytes.ends_with(b"\n");
    coverage.stated_lines = stated_lines.filter(|stated| !is_whole(stated));
    listed
}

/// How many lines a comment says there are.
fn line_count(comment: &[u8]) -> Option<usize> {
    let number = comment.strip_prefix(LINES.as_bytes())?.trim_ascii();
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// The exact name goes first: a symbol may look like an address.
fn find(line: &[u8], names: &NameIndex<'_>, functions: &FunctionTable<'_>) -> Found {
    // Order files of other systems are read as traces; those for this image spell names as it does.
    let by_name = names.find(line, Spelling::Plain);
    if matches!(by_name, Found::Function(_, Step::Name)) {
        return by_name;
    }
    match address_of(line) {
        Some(address) => functions
            .starting_at(address)
            .map_or(Found::Nowhere, |function| Found::Function(function, Step::Address)),
        None => by_name,
    }
}

/// `0x1040` and `function@0x1040`.
fn address_of(line: &[u8]) -> Option<Address> {
    let line = line.strip_prefix(b"function@").unwrap_or(line);
    prefixed_hexadecimal(line).map(Address)
}
