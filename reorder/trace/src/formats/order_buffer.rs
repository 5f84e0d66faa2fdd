//! Buffers of clang's order-file instrumentation (`-forder-file-instrumentation`, up to clang 19).
//!
//! In: the `.order` file that `__llvm_orderfile_dump` writes, and the mapping that the compiler wrote
//! (`-orderfile-write-mapping`), as companion or beside it; without a mapping functions stay hashes. Out: one exact
//! trace.
//!
//! The file is an array of `u64` without a header: the MD5 of each function's symbol at its first execution, the rest
//! zero. The program's buffer has 131072 places; the run-time library writes 524288 bytes, half of it. The mapping has
//! lines `MD5 HASH SYMBOL`, the hash without leading zeros, repeated as often as files were compiled.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::lines::split_once;
use super::llvm_names::name_hash;
use crate::{Event, Input, Location, Name, NameHash, Note, Reading, Trace};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_base::numbers::hexadecimal;

/// What the run-time library writes.
const WRITTEN: usize = 524_288;
/// The whole buffer of the program.
const MAX_SIZE: usize = 1 << 20;
/// Nine of ten hashes and more are at least this; addresses and counts are not.
const LARGE: u64 = 1 << 56;

/// Whether it is an array of hashes with zeros after them, or as large as every buffer is.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    if !bytes.len().is_multiple_of(8) || bytes.len() > MAX_SIZE {
        return false;
    }
    let used = used(bytes);
    let rest = &bytes[8 * used.len()..];
    if used.is_empty() {
        // Zeros alone could be anything.
        return bytes.len() == WRITTEN && rest.iter().all(|&byte| byte == 0);
    }
    let large = used.iter().filter(|entry| u64::from_le_bytes(**entry) >= LARGE).count();
    let is_text = std::str::from_utf8(used.as_flattened()).is_ok();
    let is_full = rest.is_empty() && bytes.len() == WRITTEN && !is_text;
    let has_tail = !rest.is_empty() && rest.iter().all(|&byte| byte == 0);
    large * 4 >= used.len() * 3 && (is_full || has_tail)
}

/// The entries before the first zero.
fn used(bytes: &[u8]) -> &[[u8; 8]] {
    let entries: &[[u8; 8]] = bytes.as_chunks().0;
    let end = entries.iter().position(|entry| *entry == [0; 8]).unwrap_or(entries.len());
    &entries[..end]
}

/// The functions in the order of the buffer.
///
/// # Errors
/// A buffer without an entry.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let used = used(input.bytes);
    if used.is_empty() {
        return Err(Error::malformed(0, "no function was recorded before the buffer was written")
            .with_hint("call __llvm_orderfile_dump() in the program after what is to be recorded"));
    }
    let mut notes = Vec::new();
    let names = mapping(input, &mut notes);
    let mut seen = HashSet::new();
    let hashes = hashes(used, &names).filter(|hash| seen.insert(*hash));
    let events: Vec<Event> = hashes.map(|hash| Event::at(location(hash, &names))).collect();
    let repeated = used.len() - events.len();
    if repeated > 0 {
        let message = format!("{repeated} entries repeat a function, recorded by two threads at once");
        notes.push(Note::new(message));
    }
    let nameless = events.iter().filter(|event| event.symbol().is_none()).count();
    if nameless > 0 && !names.is_empty() {
        let message = format!("{nameless} of {} functions are not in the mapping", events.len());
        notes.push(
            Note::new(message).with_hint(Hint::companion("give the mapping of the build that ran", "FILE")),
        );
    }
    if used.len() * 8 == input.bytes.len() {
        let message = format!("the buffer is full: functions after the first {} are missing", used.len());
        notes.push(Note::new(message).with_hint("call __llvm_orderfile_dump() earlier"));
    }
    let trace = Trace { weight: 1, events, ..Trace::default() };
    Ok(Reading { traces: vec![trace], notes })
}

fn location(hash: u64, names: &HashMap<u64, Name>) -> Location {
    match names.get(&hash) {
        Some(name) => Location::Name(name.clone()),
        None => Location::NameHash(NameHash::Md5(hash)),
    }
}

/// Entries are in the byte order of the processor that ran the program; the mapping shows which one it was.
fn hashes(used: &[[u8; 8]], names: &HashMap<u64, Name>) -> impl Iterator<Item = u64> {
    let known =
        |read: fn([u8; 8]) -> u64| used.iter().filter(|entry| names.contains_key(&read(**entry))).count();
    let read = if known(u64::from_be_bytes) > known(u64::from_le_bytes) {
        u64::from_be_bytes
    } else {
        u64::from_le_bytes
    };
    used.iter().map(move |entry| read(*entry))
}

/// Names by hash, from all mappings at hand.
fn mapping(input: &Input<'_>, notes: &mut Vec<Note>) -> HashMap<u64, Name> {
    let mut names = HashMap::new();
    for companion in input.companions.iter() {
        read_mapping(&companion.bytes, &mut names);
    }
    for path in siblings(input) {
        // A file that cannot be read is as good as none: hashes are found in the image as well.
        match std::fs::read(&path) {
            Ok(bytes) => read_mapping(&bytes, &mut names),
            Err(error) => notes.push(Note::new(format!("{}: {error}", path.display()))),
        }
    }
    names
}

/// Files beside the buffer that have `.mapping` in their names.
fn siblings(input: &Input<'_>) -> Vec<PathBuf> {
    let Some(directory) = input.path.parent() else { return Vec::new() };
    let directory = if directory.as_os_str().is_empty() { ".".as_ref() } else { directory };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let is_mapping = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains(".mapping")) && path.is_file()
    };
    let mut files: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(is_mapping).collect();
    files.sort_unstable();
    files
}

/// Adds the lines `MD5 HASH SYMBOL` of `text` whose hash is that of the symbol.
fn read_mapping(text: &[u8], names: &mut HashMap<u64, Name>) {
    for line in text.split(|&byte| byte == b'\n') {
        let Some((stated, name)) = line.strip_prefix(b"MD5 ").and_then(|line| split_once(line, b" ")) else {
            continue;
        };
        let name = name.trim_ascii_end();
        let hash = name_hash(name);
        if hexadecimal(stated) == Some(hash) {
            names.entry(hash).or_insert_with(|| Name::from(name));
        }
    }
}

#[cfg(test)]
mod tests;
