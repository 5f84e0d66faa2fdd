//! One line of a list.
//!
//! ```text
//! symbol   symbol+0x12   "symbol"   -[Class selector:]   0x1040   0000000000001040      a name or an address
//! 1040 T symbol          1040 25 T symbol                T symbol                       nm, nm -S, nm without values
//! 12 symbol   symbol 12  0.25 symbol   12 0x1040 symbol  symbol,12                      columns
//! first,second,third                                                                    several names
//! arm64:symbol           file.o:symbol                   .text.hot.symbol               ld64, gold
//! # comment              symbol # comment                ; comment      // comment
//! ```
//!
//! `file.c:symbol` keeps its file: that is how LLVM spells local functions.

use object::{Architecture, Object as _};

use crate::formats::lines::split_once;
use crate::{Event, Location};
use reorder_base::address::Address;
use reorder_base::numbers;

/// What a line says.
pub(super) enum Line {
    /// It is empty, or a comment.
    Nothing,
    /// One function, or several of a comma-separated line.
    Entries(Vec<Entry>),
    /// Anything else.
    Odd,
}

/// A function of the list.
pub(super) struct Entry {
    pub(super) event: Event,
    /// From a column beside the name; fractions in billionths.
    pub(super) number: Option<u64>,
    /// The only architecture for which the line is meant.
    pub(super) architecture: Option<&'static str>,
}

/// As `ld64` calls them in order files.
const ARCHITECTURES: [&str; 11] =
    ["arm64", "arm64e", "arm64_32", "armv6", "armv7", "armv7k", "armv7s", "i386", "ppc", "x86_64", "x86_64h"];

/// What `ld64` calls the architecture of an image.
pub(super) fn architecture_name(image: &object::File<'_>) -> Option<&'static str> {
    match image.architecture() {
        Architecture::Aarch64 => Some("arm64"),
        Architecture::X86_64 => Some("x86_64"),
        Architecture::I386 => Some("i386"),
        Architecture::Arm => Some("armv7"),
        _ => None,
    }
}

pub(super) fn parse(line: &[u8]) -> Line {
    let text = without_comment(line).trim_ascii();
    if text.is_empty() {
        return Line::Nothing;
    }
    if text.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
        return Line::Odd;
    }
    if is_one_name(text) {
        return entry(Entry::named(text));
    }
    if let Some((number, name)) = number_and_name(text) {
        return entry(Entry::named(name).map(|parsed| Entry { number: Some(number), ..parsed }));
    }
    if let Some(fields) = comma_separated(text) {
        return columns(&fields).map_or_else(|| names(&fields), |parsed| entry(Some(parsed)));
    }
    let words: Vec<&[u8]> = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    entry(symbol_table_line(&words).or_else(|| columns(&words)))
}

/// The fields of a line that commas divide beyond doubt. A blank inside a field shows columns of another kind, and a
/// bracket shows a name that has the comma in it: `Map[int,string]`.
fn comma_separated(text: &[u8]) -> Option<Vec<&[u8]>> {
    let fields: Vec<&[u8]> = text.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
    let is_field =
        |field: &&[u8]| !field.iter().any(|byte| byte.is_ascii_whitespace() || b"<>()[]{}".contains(byte));
    let (last, others) = fields.split_last()?;
    // A comma at the end of the line does not separate fields.
    let fields = if last.is_empty() { others } else { &fields };
    let is_list = text.contains(&b',') && fields.iter().all(|field| is_field(field) && !field.is_empty());
    is_list.then(|| fields.to_vec())
}

/// A time or a count before a name with blanks.
fn number_and_name(text: &[u8]) -> Option<(u64, &[u8])> {
    let blank = text.iter().position(u8::is_ascii_whitespace)?;
    let name = text[blank..].trim_ascii_start();
    decimal(&text[..blank]).filter(|_| is_one_name(name)).map(|number| (number, name))
}

fn entry(parsed: Option<Entry>) -> Line {
    parsed.map_or(Line::Odd, |parsed| Line::Entries(vec![parsed]))
}

fn names(words: &[&[u8]]) -> Line {
    let entries: Option<Vec<Entry>> = words
        .iter()
        .map(|word| match classify(word) {
            Word::Letter | Word::Other => Entry::named(word),
            _ => None,
        })
        .collect();
    entries.map_or(Line::Odd, Line::Entries)
}

/// Cuts comments: anything after `#` at the start or after a blank, whole lines after `;` or `//`.
fn without_comment(line: &[u8]) -> &[u8] {
    let text = line.trim_ascii_start();
    if text.starts_with(b"#") || text.starts_with(b";") || text.starts_with(b"//") {
        return &[];
    }
    let comment = text.windows(2).position(|pair| pair[0].is_ascii_whitespace() && pair[1] == b'#');
    comment.map_or(text, |comment| &text[..comment])
}

/// Names that have blanks or commas in them: Objective-C methods, and what a demangler printed.
fn is_one_name(text: &[u8]) -> bool {
    let bare = after_prefixes(text).0;
    let is_method = (bare.starts_with(b"-[") || bare.starts_with(b"+[")) && bare.ends_with(b"]");
    // Columns before a demangled name would end up in it; no function has such a name anyway.
    let is_demangled = bare.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && bare.contains(&b'(')
        && bare.contains(&b')');
    is_method || is_demangled
}

/// `[address [size]] type symbol`.
fn symbol_table_line(words: &[&[u8]]) -> Option<Entry> {
    let is_type = |word: &[u8]| matches!(word, [letter] if letter.is_ascii_alphabetic());
    let at =
        |word: &[u8]| numbers::hexadecimal(word).map(|address| Event::at(Location::Image(Address(address))));
    let event = match *words {
        [kind, name] if is_type(kind) && kind != b"U" => Event::at(Location::Name(plausible(name)?.into())),
        [address, kind, name] if is_type(kind) => {
            Event { name: Some(plausible(name)?.into()), ..at(address)? }
        }
        [address, size, kind, name] if is_type(kind) => Event {
            name: Some(plausible(name)?.into()),
            size: Some(numbers::hexadecimal(size)?),
            ..at(address)?
        },
        _ => return None,
    };
    Some(Entry { event, number: None, architecture: None })
}

/// One name, one address or both, among at most two numbers, of which the first counts.
fn columns(words: &[&[u8]]) -> Option<Entry> {
    const MAX_COLUMNS: usize = 4;
    let (mut name, mut address, mut number) = (None, None, None);
    if words.len() > MAX_COLUMNS {
        return None;
    }
    for &word in words {
        match classify(word) {
            Word::Number(value) => number = number.or(Some(value)),
            Word::Address(value) if address.is_none() => address = Some(Address(value)),
            Word::Letter | Word::Other if name.is_none() => name = Some(word),
            _ => return None,
        }
    }
    let mut entry = match (name, address) {
        (Some(name), None) => Entry::named(name)?,
        (Some(name), Some(address)) => {
            let mut entry = Entry::named(name)?;
            entry.event.name = entry.event.symbol().map(Into::into);
            entry.event.location = Location::Image(address);
            entry
        }
        (None, Some(address)) => {
            Entry { event: Event::at(Location::Image(address)), number: None, architecture: None }
        }
        (None, None) => return None,
    };
    entry.number = number;
    Some(entry)
}

enum Word {
    Number(u64),
    Address(u64),
    Letter,
    Other,
}

fn classify(word: &[u8]) -> Word {
    let padded = word.len() >= 8 && word.starts_with(b"0");
    if let Some(address) = word.strip_prefix(b"0x").or(padded.then_some(word)).and_then(numbers::hexadecimal)
    {
        return Word::Address(address);
    }
    match (decimal(word), word) {
        (Some(number), _) => Word::Number(number),
        (None, [letter]) if letter.is_ascii_alphabetic() => Word::Letter,
        _ => Word::Other,
    }
}

impl Entry {
    /// What linkers accept as a name, without what they put before or after it.
    fn named(text: &[u8]) -> Option<Self> {
        let (name, architecture) = after_prefixes(text);
        let unquoted = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")).unwrap_or(name);
        let name = plausible(without_offset(section_symbol(unquoted)))?;
        Some(Self { event: Event::at(Location::Name(name.into())), number: None, architecture })
    }
}

/// After `architecture:` and `object.o:`.
fn after_prefixes(text: &[u8]) -> (&[u8], Option<&'static str>) {
    let split = |text: &[u8]| text.iter().position(|&byte| byte == b':');
    let mut name = text;
    let mut architecture = None;
    if let Some(colon) = split(name) {
        architecture = ARCHITECTURES.into_iter().find(|known| known.as_bytes() == &name[..colon]);
        name = if architecture.is_some() { &name[colon + 1..] } else { name };
    }
    if let Some(colon) = split(name)
        && (name[..colon].ends_with(b".o") || name[..colon].ends_with(b".o)"))
    {
        name = &name[colon + 1..];
    }
    (name, architecture)
}

/// The function of a section of its own, which gold's section ordering files name.
fn section_symbol(name: &[u8]) -> &[u8] {
    let Some(symbol) = name.strip_prefix(b".text.") else { return name };
    let groups: [&[u8]; 5] = [b"hot.", b"unlikely.", b"startup.", b"exit.", b"unknown."];
    groups.into_iter().find_map(|group| symbol.strip_prefix(group)).unwrap_or(symbol)
}

/// A name has a letter or a byte of another script, is no pattern, and has a comma only inside; it is no path, and no line
/// of fields between colons.
fn plausible(name: &[u8]) -> Option<&[u8]> {
    if !is_one_name(name) && !is_symbol_after_file(name) {
        return None;
    }
    let has_letter = name.iter().any(|byte| byte.is_ascii_alphabetic() || *byte == b'_' || !byte.is_ascii());
    let is_whole = !name.starts_with(b",") && !name.ends_with(b",");
    (has_letter && is_whole && !name.contains(&b'*')).then_some(name)
}

/// `symbol`, or `file.c:symbol`: at most one colon that is no part of a scope, and after it a symbol.
fn is_symbol_after_file(name: &[u8]) -> bool {
    let is_colon = |at: usize| name.get(at) == Some(&b':');
    let mut single = (0..name.len())
        .filter(|&at| is_colon(at) && !is_colon(at + 1) && !at.checked_sub(1).is_some_and(is_colon));
    let symbol = match (single.next(), single.next()) {
        (None, _) => name,
        (Some(colon), None) => &name[colon + 1..],
        (Some(_), Some(_)) => return false,
    };
    !symbol.is_empty() && !symbol.starts_with(b"/")
}

/// `main` for `main+0x12`, which backtraces print.
fn without_offset(word: &[u8]) -> &[u8] {
    let plus = word.windows(3).rposition(|window| window == b"+0x");
    plus.filter(|&plus| plus > 0 && numbers::hexadecimal(&word[plus + 3..]).is_some())
        .map_or(word, |plus| &word[..plus])
}

/// A number, one with a fraction in billionths.
fn decimal(word: &[u8]) -> Option<u64> {
    match split_once(word, b".") {
        Some((whole, fraction)) => numbers::billionths(whole, fraction),
        None => numbers::decimal(word),
    }
}
