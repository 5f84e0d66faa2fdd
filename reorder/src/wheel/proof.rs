//! Checks that one wheel is another with some of its files changed, using a library that wrote neither.
//!
//! In: both archives, and a judge of changed files. Out: sentences on what else differs. It compares the comment, the order
//! of the members, their names, packed contents, times, modes, comments and extra fields, and the list of digests.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _};

use zip::ZipArchive;

use super::Wheel;
use super::archive::Archive;
use super::list::{broken, digest, plain};
use reorder_base::error::{Error, Result};

/// The most bytes that one compressed byte can expand to.
const MAX_EXPANSION: u64 = 1032;

/// Differences of `new` from `old`, except in files for which `judge`, given the name and both contents, returns `None`; the
/// list must have the digests of these.
///
/// # Errors
/// Archives that cannot be read, and those of `judge`.
pub fn compare(
    old: &[u8],
    new: &[u8],
    mut judge: impl FnMut(&str, &[u8], &[u8]) -> Result<Option<String>>,
) -> Result<Vec<String>> {
    let record = Wheel::open(old)?.record;
    // The library takes the last of several members with one name, and does not look for overlaps.
    Archive::parse(new)?;
    let open = |bytes| ZipArchive::new(Cursor::new(bytes)).map_err(unreadable);
    let (mut old, mut new) = (open(old)?, open(new)?);
    let mut differences = Vec::new();
    if old.comment() != new.comment() {
        differences.push("the comments of the archives differ".to_owned());
    }
    if old.len() != new.len() {
        differences.push(format!("there are {} files instead of {}", new.len(), old.len()));
        return Ok(differences);
    }
    let (mut changed, mut lists) = (BTreeMap::new(), None);
    for index in 0..old.len() {
        let (one, other) = (raw(&mut old, index)?, raw(&mut new, index)?);
        if one.facts != other.facts {
            differences.push(format!("{}: {}, not {}", one.facts.name, other.facts, one.facts));
            continue;
        }
        if (one.checksum, one.size, one.packed) == (other.checksum, other.size, other.packed) {
            continue;
        }
        let name = one.facts.name;
        let (one, other) = (contents(&mut old, index)?, contents(&mut new, index)?);
        if name == record {
            lists = Some((one, other));
            continue;
        }
        differences.extend(judge(&name, &one, &other)?);
        changed.insert(name, (digest(&other), other.len().to_string()));
    }
    match lists {
        Some((old, new)) => differences.extend(compare_lists(&old, &new, &changed)?),
        None if changed.is_empty() => {}
        None => differences.push("files changed but the list of digests did not".to_owned()),
    }
    Ok(differences)
}

/// What two members must have in common.
#[derive(PartialEq)]
struct Facts {
    name: String,
    mode: Option<u32>,
    attributes: u32,
    system: (u8, u8),
    time: Option<zip::DateTime>,
    comment: String,
    method: String,
    extra: Option<Vec<u8>>,
}

impl std::fmt::Display for Facts {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mode = self.mode.unwrap_or_default();
        write!(formatter, "{} with mode {mode:o}, {}, comment {:?}", self.name, self.method, self.comment)?;
        match &self.time {
            Some(time) => write!(formatter, ", {time}"),
            None => Ok(()),
        }
    }
}

/// A member as it is stored.
struct Raw {
    facts: Facts,
    checksum: u32,
    size: u64,
    packed: Vec<u8>,
}

fn unreadable(error: impl std::fmt::Display) -> Error {
    Error::malformed(0, format!("the archive cannot be read: {error}"))
}

fn raw(archive: &mut ZipArchive<Cursor<&[u8]>>, index: usize) -> Result<Raw> {
    let mut member = archive.by_index_raw(index).map_err(unreadable)?;
    let facts = Facts {
        name: member.name().map_err(unreadable)?.into_owned(),
        mode: member.unix_mode(),
        attributes: member.external_attributes(),
        system: member.version_made_by(),
        time: member.last_modified(),
        comment: member.comment().to_owned(),
        method: format!("{:?}", member.compression()),
        extra: member.extra_data(),
    };
    let (checksum, size) = (member.crc32(), member.size());
    let mut packed = Vec::new();
    member.read_to_end(&mut packed).map_err(unreadable)?;
    Ok(Raw { facts, checksum, size, packed })
}

fn contents(archive: &mut ZipArchive<Cursor<&[u8]>>, index: usize) -> Result<Vec<u8>> {
    let member = archive.by_index(index).map_err(unreadable)?;
    let longest = member.compressed_size().saturating_add(1).saturating_mul(MAX_EXPANSION);
    let mut contents = Vec::new();
    member.take(longest).read_to_end(&mut contents).map_err(unreadable)?;
    Ok(contents)
}

/// Differences of the lists, except for the digests and sizes of changed files.
fn compare_lists(
    old: &[u8],
    new: &[u8],
    changed: &BTreeMap<String, (String, String)>,
) -> Result<Vec<String>> {
    let rows = |list: &[u8]| {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(list);
        reader.records().collect::<std::result::Result<Vec<_>, _>>().map_err(broken)
    };
    let (old, new) = (rows(old)?, rows(new)?);
    if old.len() != new.len() {
        return Ok(vec!["the list of digests has another number of lines".to_owned()]);
    }
    let mut listed = 0;
    let mut differences = Vec::new();
    for (old, new) in old.iter().zip(&new) {
        let name = old.get(0).unwrap_or_default();
        let is_right = match changed.get(plain(name)) {
            None => old == new,
            Some((digest, size)) => {
                listed += 1;
                new.iter().eq([name, digest, size])
            }
        };
        if !is_right {
            differences.push(format!("the line of {name} in the list of digests is wrong"));
        }
    }
    if listed != changed.len() {
        differences.push("the list of digests does not name each changed file once".to_owned());
    }
    Ok(differences)
}
