//! The spellings of one function's name.

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

/// The path of a Rust function without crate disambiguators and hashes, equal for both ways of mangling; nothing
/// for names of other languages.
pub(super) fn rust_path(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(root_name(name)).ok()?;
    let is_hashed = name.starts_with("_R") || (name.starts_with("_ZN") && has_legacy_hash(name));
    if !is_hashed {
        return None;
    }
    Some(format!("{:#}", rustc_demangle::try_demangle(name).ok()?))
}

/// `17h`, sixteen hexadecimal digits and `E` at the end.
fn has_legacy_hash(name: &str) -> bool {
    let bytes = name.as_bytes();
    let Some(tail) = bytes.last_chunk::<20>() else { return false };
    tail.starts_with(b"17h") && tail[3..19].iter().all(u8::is_ascii_hexdigit) && tail[19] == b'E'
}
