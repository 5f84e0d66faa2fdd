//! Reads an order file: a symbol per line, or an address for functions without one.
//!
//! In: the file's bytes and an image's functions. Out: the listed functions, each once, and an account of the
//! lines that name none. Lines: `symbol`, `0xADDRESS`, `function@0xADDRESS`, `file.c:symbol` for local functions;
//! lines that start with `#` are comments. Any bytes are a valid order file: an unknown line is counted, because
//! order files outlive builds.

use serde::Serialize;

use crate::address::Address;
use crate::image::functions::{FunctionIndex, FunctionTable};
use crate::trace::{Found, NameIndex};

/// How many lines that name no function are told.
const EXAMPLES: usize = 10;

/// What an order file asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedOrder {
    /// The functions it lists, each once, in its order.
    pub functions: Vec<FunctionIndex>,
    /// What became of its lines.
    pub coverage: OrderCoverage,
}

/// An account of all lines that are not comments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OrderCoverage {
    /// Lines that should name a function.
    pub lines: usize,
    /// Found by address.
    pub by_address: usize,
    /// Found by exact name.
    pub by_name: usize,
    /// Found by file and name.
    pub by_file_and_name: usize,
    /// Found by the name without suffixes that differ from build to build.
    pub by_root_name: usize,
    /// Name a function that an earlier line names already.
    pub duplicate: usize,
    /// Names that several functions have.
    pub ambiguous: usize,
    /// No such function.
    pub unknown: usize,
    /// The first few lines that are ambiguous or unknown.
    pub examples: Vec<String>,
}

impl OrderCoverage {
    /// Lines for which a function was found, repeated ones included.
    #[must_use]
    pub fn found(&self) -> usize {
        self.by_address + self.by_name + self.by_file_and_name + self.by_root_name
    }
}

/// Finds the functions that the lines of `bytes` name.
#[must_use]
pub fn read(bytes: &[u8], functions: &FunctionTable<'_>) -> ListedOrder {
    let finder = Finder::new(functions);
    let mut seen = vec![false; functions.len()];
    let mut listed = ListedOrder::default();
    let coverage = &mut listed.coverage;
    for line in bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii) {
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        coverage.lines += 1;
        let (function, counter) = match finder.find(line) {
            Match::Address(function) => (Some(function), &mut coverage.by_address),
            Match::Name(function) => (Some(function), &mut coverage.by_name),
            Match::FileAndName(function) => (Some(function), &mut coverage.by_file_and_name),
            Match::RootName(function) => (Some(function), &mut coverage.by_root_name),
            Match::Ambiguous => (None, &mut coverage.ambiguous),
            Match::Unknown => (None, &mut coverage.unknown),
        };
        *counter += 1;
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
    listed
}

enum Match {
    Address(FunctionIndex),
    Name(FunctionIndex),
    FileAndName(FunctionIndex),
    RootName(FunctionIndex),
    Ambiguous,
    Unknown,
}

/// All ways to find a function of one image.
struct Finder<'table, 'data> {
    functions: &'table FunctionTable<'data>,
    names: NameIndex<'data>,
    /// Local functions by (symbol, source file, function), sorted.
    locals: Vec<(&'data [u8], &'data [u8], FunctionIndex)>,
}

impl<'table, 'data> Finder<'table, 'data> {
    fn new(functions: &'table FunctionTable<'data>) -> Self {
        Self { functions, names: NameIndex::new(functions), locals: local_functions(functions) }
    }

    fn find(&self, line: &[u8]) -> Match {
        // A symbol may look like anything, so the exact name goes first.
        let by_name = self.names.find(line);
        if let Found::Exact(function) = by_name {
            return Match::Name(function);
        }
        if let Some(address) = address_of(line) {
            return self.functions.starting_at(address).map_or(Match::Unknown, Match::Address);
        }
        match by_name {
            Found::ByRoot(function) => Match::RootName(function),
            Found::Ambiguous => Match::Ambiguous,
            Found::Exact(_) | Found::Nowhere => self.find_in_file(line),
        }
    }

    /// `file.c:name`: the local function of that file, else the only function of that name.
    fn find_in_file(&self, line: &[u8]) -> Match {
        let Some(colon) = line.iter().rposition(|&byte| byte == b':' || byte == b';') else {
            return Match::Unknown;
        };
        let (file, name) = (base_name(&line[..colon]), &line[colon + 1..]);
        // `Type::method` is a name, not a file.
        if file.is_empty() || file.ends_with(b":") {
            return Match::Unknown;
        }
        let first = self.locals.partition_point(|local| (local.0, local.1) < (name, file));
        let mut here = self.locals[first..].iter().take_while(|local| (local.0, local.1) == (name, file));
        match (here.next(), here.next()) {
            (Some(local), None) => Match::FileAndName(local.2),
            (Some(_), Some(_)) => Match::Ambiguous,
            (None, _) => match self.names.find(name) {
                Found::Exact(function) | Found::ByRoot(function) => Match::RootName(function),
                Found::Ambiguous => Match::Ambiguous,
                Found::Nowhere => Match::Unknown,
            },
        }
    }
}

/// `0x1040` and `function@0x1040`.
fn address_of(line: &[u8]) -> Option<Address> {
    let line = line.strip_prefix(b"function@").unwrap_or(line);
    let digits = std::str::from_utf8(line.strip_prefix(b"0x")?).ok()?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_number.then(|| u64::from_str_radix(digits, 16).ok().map(Address)).flatten()
}

/// Local function symbols stand behind the symbol of their source file.
fn local_functions<'data>(
    functions: &FunctionTable<'data>,
) -> Vec<(&'data [u8], &'data [u8], FunctionIndex)> {
    let mut file: &[u8] = b"";
    let mut locals = Vec::new();
    for symbol in functions.symbols.iter() {
        if symbol.kind == object::elf::STT_FILE.0 {
            file = base_name(symbol.name);
        } else if symbol.binding == object::elf::STB_LOCAL.0
            && symbol.is_function()
            && let Some(function) = functions.starting_at(symbol.value)
        {
            locals.push((symbol.name, file, function));
        }
    }
    locals.sort_unstable();
    locals.dedup();
    locals
}

fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}
