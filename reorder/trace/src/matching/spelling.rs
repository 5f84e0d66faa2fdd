//! The spellings of one function's name.

use std::fmt::{self, Write as _};

/// `name` without the suffixes that optimisers and linkers add and that differ from build to build: `.llvm.N`,
/// `.__uniq.N`, `.lto_priv.N`, `.constprop.N`, `.isra.N`, `.Tgm`.
///
/// Suffixes that name a part (`.cold`, `.part.0`, `.resume`) stay: the part is another function.
pub fn root_name(name: &[u8]) -> &[u8] {
    let mut root = name;
    while let Some(shorter) = without_suffix(root) {
        root = shorter;
    }
    root
}

const NUMBERED: [&str; 5] = ["llvm", "__uniq", "lto_priv", "constprop", "isra"];

fn without_suffix(name: &[u8]) -> Option<&[u8]> {
    let stem = name.strip_suffix(b".Tgm").or_else(|| {
        let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let tagged = name[..name.len() - digits].strip_suffix(b".").filter(|_| digits > 0)?;
        NUMBERED.iter().find_map(|tag| tagged.strip_suffix(tag.as_bytes())?.strip_suffix(b"."))
    })?;
    (!stem.is_empty()).then_some(stem)
}

/// Source file and name of what LLVM calls a local function: `demo.c;helper` since version 18.
pub(super) fn split_file(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let semicolon = name.iter().position(|&byte| byte == b';')?;
    Some((&name[..semicolon], &name[semicolon + 1..]))
}

/// The same in earlier versions and in order files: `demo.c:helper`. A colon alone means little: `-[Foo bar:]` and
/// `Type::method` are names.
pub(super) fn split_file_before_colon(name: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = name.iter().rposition(|&byte| byte == b':')?;
    let (file, symbol) = (&name[..colon], &name[colon + 1..]);
    let is_file = !file.is_empty() && !file.ends_with(b":") && !file.contains(&b'[');
    (is_file && !symbol.is_empty()).then_some((file, symbol))
}

/// The last component of a path.
pub(super) fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// How the names of a trace are spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// As in ELF symbol tables.
    Plain,
    /// With an underscore before each.
    MachO,
}

impl Spelling {
    /// The spelling of most `names`. On ELF only mangled names and a few of the run-time's start with an underscore; on
    /// Mach-O all do, mangled ones with two.
    pub fn of<'names>(names: impl Iterator<Item = &'names [u8]>) -> Self {
        let (mut all, mut underscored) = (0u64, 0u64);
        for name in names {
            all += 1;
            let is_mangled = name.starts_with(b"_Z") || name.starts_with(b"_R");
            underscored += u64::from(name.starts_with(b"_") && !is_mangled || name.starts_with(b"-["));
        }
        if all > 0 && underscored * 10 >= all * 9 { Self::MachO } else { Self::Plain }
    }
}

/// Mangled names of more bytes are not taken apart: back references may make the readable form exponentially longer.
const MAX_MANGLED_LENGTH: usize = 4 << 10;
/// Readable forms stop here.
const MAX_READABLE_LENGTH: usize = 4 << 10;

/// Text up to a length; a longer text is an error, which ends the writer.
#[derive(Default)]
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_READABLE_LENGTH {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The path of a Rust function without crate disambiguators and hashes, equal for both ways of mangling; `None`
/// for names of other languages, and for those that are too long.
pub(super) fn rust_path(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(root_name(name)).ok()?;
    let is_hashed = name.starts_with("_R") || (name.starts_with("_ZN") && has_legacy_hash(name));
    if !is_hashed || name.len() > MAX_MANGLED_LENGTH {
        return None;
    }
    let mut path = Bounded::default();
    write!(path, "{:#}", rustc_demangle::try_demangle(name).ok()?).ok()?;
    Some(path.0)
}

/// The name as people write it: demangled, without the source file; as it is when that is not possible.
pub fn readable(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(&name[..name.len().min(MAX_MANGLED_LENGTH)]);
    let bare = text.split_once(';').map_or(&*text, |(_, bare)| bare);
    let mut readable = Bounded::default();
    if let Ok(rust) = rustc_demangle::try_demangle(bare) {
        if write!(readable, "{rust:#}").is_ok() {
            return readable.0;
        }
    // Without this mark it is a name of C, which reads as the mangled name of a type: `a` would be `signed char`.
    } else if (bare.starts_with("_Z") || bare.starts_with("__Z"))
        && let Ok(symbol) = cpp_demangle::Symbol::new(bare.as_bytes())
        && symbol.structured_demangle(&mut readable, &cpp_demangle::DemangleOptions::default()).is_ok()
    {
        return readable.0;
    }
    bare.to_owned()
}

/// `17h`, sixteen hexadecimal digits and `E` at the end.
fn has_legacy_hash(name: &str) -> bool {
    let bytes = name.as_bytes();
    let Some(tail) = bytes.last_chunk::<20>() else { return false };
    tail.starts_with(b"17h") && tail[3..19].iter().all(u8::is_ascii_hexdigit) && tail[19] == b'E'
}
