//! The table of function names that LLVM puts into its raw profiles and instrumented images.
//!
//! In: the bytes of `__llvm_prf_names`, `__llvm_covnames` or the names part of a profile. Out: [`NameTable`], names by
//! the hash that records refer to them with.
//!
//! ```text
//! chunk   = uleb128 length, uleb128 compressed length (0: stored), payload       one per translation unit
//! blob    = { chunk, any number of NULs }                                        the linker only concatenates
//! payload = names joined by 0x01, as a zlib stream if compressed
//! hash    = the first eight bytes of the name's MD5, little endian in every file
//! ```
//!
//! Specification: `InstrProf.cpp`, `collectGlobalObjectNameStrings` and `readAndDecodeStrings`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Read as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use flate2::read::ZlibDecoder;
use md5::{Digest as _, Md5};

use crate::cursor::{ByteOrder, Cursor};
use crate::{Name, Note};
use reorder_base::error::{Error, Result};

/// More names than any program has; a table that claims more is damaged.
const MAX_TEXT: u64 = 1 << 30;
/// Deflate writes at most 258 bytes for two bits.
const MAX_EXPANSION: u64 = 1032;
/// What the tables that wait for the next profile of their program may take, in bytes of names.
const MAX_KEPT: usize = 512 << 20;
/// More images than a process has, and few enough to look through all.
const MAX_TABLES: usize = 1024;

/// The hash by which all of LLVM refers to the function called `name`.
pub(crate) fn name_hash(name: &[u8]) -> u64 {
    let digest = Md5::digest(name);
    digest.first_chunk().map_or(0, |first| u64::from_le_bytes(*first))
}

/// The names of one blob.
#[derive(Debug, Default)]
pub(super) struct NameTable {
    /// All payloads one after the other.
    text: Vec<u8>,
    /// In file order, without repetitions.
    entries: Vec<NameEntry>,
    by_hash: HashMap<u64, u32>,
    damage: Option<Error>,
}

#[derive(Debug)]
struct NameEntry {
    start: u32,
    length: u32,
    /// Made at the first request: most names of a program are never asked for, the others in every trace.
    name: OnceLock<Name>,
}

impl NameTable {
    /// All names of `blob` before any damage.
    pub(super) fn read(blob: &[u8]) -> Self {
        let mut table = Self::default();
        let mut cursor = Cursor::new(blob, ByteOrder::Little);
        while skip_padding(&mut cursor) && table.damage.is_none() {
            let start = table.text.len();
            table.damage = read_chunk(&mut cursor, &mut table.text).err();
            table.index_from(start);
        }
        table
    }

    /// The name of this hash.
    pub(super) fn get(&self, hash: u64) -> Option<Name> {
        let entry = self.entries.get(*self.by_hash.get(&hash)? as usize)?;
        Some(entry.name.get_or_init(|| Name::from(self.bytes_of(entry))).clone())
    }

    /// All names in file order, repetitions left out.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|entry| self.bytes_of(entry))
    }

    /// What is wrong with a blob that starts at `base` of its file; the names before it are there.
    pub(super) fn damage(&self, base: u64) -> Option<Note> {
        let error = self.damage.as_ref()?;
        Some(Note::at(
            base.saturating_add(error.offset.unwrap_or(0)),
            format!(
                "the table of names is damaged: {}; {} names before it are kept",
                error.message,
                self.entries.len()
            ),
        ))
    }

    fn bytes_of(&self, entry: &NameEntry) -> &[u8] {
        &self.text[entry.start as usize..][..entry.length as usize]
    }

    /// Enters the names of the payload that starts at `start` of the text. A name of several translation units
    /// counts once, so that memory grows with what the compressed bytes tell apart.
    fn index_from(&mut self, start: usize) {
        let mut position = start;
        for name in self.text[start..].split(|&byte| byte == 1) {
            let (name_start, length) = (position, name.len());
            position += length + 1;
            // The text is shorter than 1 GiB, see `read_chunk`.
            if let Entry::Vacant(vacant) = self.by_hash.entry(name_hash(name))
                && length > 0
            {
                vacant.insert(self.entries.len() as u32);
                let (start, length) = (name_start as u32, length as u32);
                self.entries.push(NameEntry { start, length, name: OnceLock::new() });
            }
        }
    }
}

/// Moves past the NULs between chunks; false at the end.
fn skip_padding(cursor: &mut Cursor<'_>) -> bool {
    let padding = cursor.rest().iter().take_while(|&&byte| byte == 0).count();
    cursor.skip(padding as u64).is_ok() && !cursor.is_at_end()
}

/// Appends the next chunk's payload to `text`, or nothing if it contradicts its header.
fn read_chunk(cursor: &mut Cursor<'_>, text: &mut Vec<u8>) -> Result<()> {
    let offset = cursor.offset();
    let length = cursor.uleb128()?;
    let compressed_length = cursor.uleb128()?;
    if length > MAX_TEXT.saturating_sub(text.len() as u64) {
        return Err(Error::malformed(
            offset,
            format!("a chunk of {length} bytes of names is beyond any program"),
        ));
    }
    if compressed_length == 0 {
        text.extend_from_slice(cursor.take(length)?);
        return Ok(());
    }
    let compressed = cursor.take(compressed_length)?;
    if length > compressed_length.saturating_mul(MAX_EXPANSION) {
        let message = format!("{compressed_length} compressed bytes cannot become {length}");
        return Err(Error::malformed(offset, message));
    }
    let start = text.len();
    // One byte more than expected shows a stream that is too long.
    let inflated = ZlibDecoder::new(compressed).take(length + 1).read_to_end(text);
    let error = match inflated {
        Ok(inflated) if inflated as u64 == length => return Ok(()),
        Ok(_) => format!("the compressed names do not have the {length} bytes that they should"),
        Err(error) => format!("the compressed names cannot be inflated: {error}"),
    };
    text.truncate(start);
    Err(Error::malformed(offset, error))
}

/// Tables that were read already: each of a thousand profiles of one program carries the same blob.
#[derive(Debug, Default)]
pub(crate) struct NameTables {
    /// Latest last.
    kept: Mutex<Vec<KeptTable>>,
}

#[derive(Debug)]
struct KeptTable {
    blob: Box<[u8]>,
    table: Arc<NameTable>,
}

impl NameTables {
    /// The table of `blob`, read at most once as long as it fits among the others.
    pub(super) fn read(&self, blob: &[u8]) -> Arc<NameTable> {
        // A panic cannot leave the list in disorder: it changes in single pushes and removals.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.iter().find(|known| *known.blob == *blob) {
            return Arc::clone(&known.table);
        }
        // Under the lock, because a thread that waits for it mostly wants the same table.
        let table = Arc::new(NameTable::read(blob));
        kept.push(KeptTable { blob: blob.into(), table: Arc::clone(&table) });
        let mut size: usize = kept.iter().map(|known| known.table.text.len()).sum();
        while kept.len() > 1 && (size > MAX_KEPT || kept.len() > MAX_TABLES) {
            size -= kept.remove(0).table.text.len();
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use proptest::prelude::*;

    use super::{NameTable, NameTables, name_hash};

    fn stored(text: &[u8]) -> Vec<u8> {
        [&[text.len() as u8, 0], text].concat()
    }

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(text).unwrap();
        let payload = encoder.finish().unwrap();
        [&[text.len() as u8, payload.len() as u8], payload.as_slice()].concat()
    }

    fn names(table: &NameTable) -> Vec<&[u8]> {
        table.iter().collect()
    }

    #[test]
    fn chunks_of_both_kinds_follow_each_other() {
        let blob = [stored(b"main\x01a.c;helper"), vec![0; 3], compressed(b"other\x01main")].concat();
        let table = NameTable::read(&blob);
        assert_eq!(names(&table), [&b"main"[..], b"a.c;helper", b"other"]);
        // `main` as LLVM's own documents show it.
        assert_eq!(table.get(0xdb95_6436_e78d_d5fa).unwrap(), "main".into());
        assert_eq!(table.get(name_hash(b"absent")), None);
        assert!(table.damage(0).is_none());
        assert_eq!(names(&NameTable::read(&[0; 8])), [b""; 0]);
    }

    #[test]
    fn names_before_damage_are_kept() {
        let good = stored(b"main");
        let mut broken = compressed(b"one\x01two\x01three");
        broken[6] ^= 0xff;
        let cut = &compressed(b"one\x01two")[..9];
        let wrong_length = [&[9], &compressed(b"one\x01two")[1..]].concat();
        // 2^40 bytes; 4096 bytes out of two.
        let beyond = vec![0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 9, 1];
        let bomb = vec![0x80, 0x20, 2, 0x78, 0x9c];
        for damaged in [broken, cut.to_vec(), wrong_length, beyond, bomb] {
            let blob = [good.as_slice(), &damaged].concat();
            let table = NameTable::read(&blob);
            assert_eq!(names(&table), [b"main"]);
            let note = table.damage(100).unwrap();
            assert!((100 + good.len() as u64..=100 + blob.len() as u64).contains(&note.offset.unwrap()));
        }
    }

    #[test]
    fn equal_blobs_share_a_table() {
        let tables = NameTables::default();
        let (first, other) = (stored(b"main"), stored(b"other"));
        let table = tables.read(&first);
        assert!(std::sync::Arc::ptr_eq(&table, &tables.read(&first)));
        assert_eq!(names(&tables.read(&other)), [b"other"]);
    }

    proptest! {
        #[test]
        fn damage_lies_inside(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), chunk: bool) {
            if chunk {
                bytes = [compressed(b"one\x01two"), bytes].concat();
            }
            let table = NameTable::read(&bytes);
            prop_assert!(!chunk || table.iter().count() >= 2);
            if let Some(note) = table.damage(0) {
                prop_assert!(note.offset.unwrap() <= bytes.len() as u64);
            }
            for name in table.iter() {
                prop_assert_eq!(&*table.get(name_hash(name)).unwrap(), name);
            }
        }
    }
}
