//! `.gcno`: names of the functions of one object file.
//!
//! After the header come the compiler's directory and a flag, then records as in `.gcda`. A function's record is id,
//! two checksums and the name, further strings after it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::header::{self, Header, Kind, Version};
use crate::cursor::Cursor;
use crate::{Input, Name};
use reorder_base::error::Result;

const FUNCTION: u32 = 0x0100_0000;

/// Names by id and checksum of the control flow.
#[derive(Default)]
pub(super) struct Names {
    by_function: HashMap<(u32, u32), Name>,
}

impl Names {
    pub(super) fn get(&self, id: u32, checksum: u32) -> Option<&Name> {
        self.by_function.get(&(id, checksum))
    }
}

/// Where names were looked for.
pub(super) enum Found {
    /// The file that belongs to the data.
    Names(Names),
    /// There is a file at the place, or a companion, that belongs to another compilation.
    Other(PathBuf),
    /// No such file.
    Nothing,
}

/// The names that belong to `input`: from a companion, or from the file beside it.
pub(super) fn find(input: &Input<'_>, header: Header) -> Found {
    let mut other = None;
    let companions =
        input.companions.iter().map(|companion| (companion.path.clone(), Some(&companion.bytes)));
    let siblings = siblings(input.path).into_iter().map(|path| (path, None));
    for (path, bytes) in companions.chain(siblings) {
        let read = match bytes {
            Some(bytes) => read(bytes, header),
            None => std::fs::read(&path).ok().and_then(|bytes| read(&bytes, header)),
        };
        match read {
            Some(Some(names)) => return Found::Names(names),
            Some(None) => other = Some(other.unwrap_or(path)),
            None => {}
        }
    }
    other.map_or(Found::Nothing, Found::Other)
}

/// Where the compiler may have left the file: beside the data; where the data's name says, if that is a whole path as
/// `-fprofile-dir` spells it; and since `GCOV_PREFIX` puts directories before the data's path, at each of the
/// paths that remain without some of them.
fn siblings(path: &Path) -> Vec<PathBuf> {
    let beside = path.with_extension("gcno");
    let absolute = std::path::absolute(&beside).unwrap_or_default();
    let components: Vec<_> = absolute.components().skip(1).collect();
    let shorter = (1..components.len()).map(|skipped| {
        let rest: PathBuf = components.iter().skip(skipped).collect();
        Path::new("/").join(rest)
    });
    let spelled = spelled_path(&beside);
    std::iter::once(beside).chain(spelled).chain(shorter).collect()
}

/// `/a/b.gcno` for a file called `#a#b.gcno`; a directory `..` is spelled `^`.
fn spelled_path(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?.strip_prefix('#')?;
    let parts = name.split('#').map(|part| if part == "^" { ".." } else { part });
    Some(Path::new("/").join(parts.collect::<PathBuf>()))
}

/// `None` when it is not such a file, `Some(None)` when it belongs to another compilation.
fn read(bytes: &[u8], data: Header) -> Option<Option<Names>> {
    let (header, mut cursor) = header::read(bytes, Kind::Notes).ok()?;
    // The byte order may differ: data have the target's, names that of the system that compiled.
    if (header.version, header.stamp) != (data.version, data.stamp) {
        return Some(None);
    }
    let mut names = Names::default();
    // Names before any damage are as good as in a whole file.
    let _ = read_records(header.version, &mut cursor, &mut names);
    Some(Some(names))
}

fn read_records(version: Version, cursor: &mut Cursor<'_>, names: &mut Names) -> Result<()> {
    if version.major >= 9 {
        string(version, cursor)?;
    }
    if version.major >= 8 {
        cursor.skip(4)?;
    }
    while !cursor.is_at_end() {
        let (tag, length) = (cursor.u32()?, cursor.u32()?);
        let base = cursor.offset();
        let payload = cursor.take_array(length.into(), if version.counts_bytes() { 1 } else { 4 })?;
        if tag == FUNCTION && length > 0 {
            let mut payload = Cursor::part(payload, cursor.order(), base);
            let (id, _lines, checksum) = (payload.u32()?, payload.u32()?, payload.u32()?);
            names.by_function.insert((id, checksum), Name::from(string(version, &mut payload)?));
        }
    }
    Ok(())
}

/// A length in the unit of the version, and bytes with a NUL, or several, after them.
fn string<'data>(version: Version, cursor: &mut Cursor<'data>) -> Result<&'data [u8]> {
    let length = cursor.u32()?;
    let bytes = cursor.take_array(length.into(), if version.counts_bytes() { 1 } else { 4 })?;
    Ok(bytes.split(|&byte| byte == 0).next().unwrap_or_default())
}
