//! Python wheels: archives with a list of digests, which must be updated when an image in them changes.
//!
//! In: an archive, and other contents of some files. Out: the archive with them and with their digests in the list, read
//! again by another library and compared. Everything else is copied as it is. Source: "Binary distribution format" and
//! "Recording installed projects", packaging.python.org.

mod archive;
mod list;
pub mod proof;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::wheel::archive::Archive;
use crate::wheel::list::updated;
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};

/// First bytes of an archive with members.
const ARCHIVE_MAGIC: &[u8] = b"PK\x03\x04";
/// The list of members, with their digests and sizes.
const RECORD: &str = ".dist-info/RECORD";

/// An archive that is a wheel.
pub struct Wheel<'data> {
    bytes: &'data [u8],
    archive: Archive<'data>,
    record: &'data str,
}

/// Whether `bytes` begins like an archive.
#[must_use]
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(ARCHIVE_MAGIC)
}

impl<'data> Wheel<'data> {
    /// Reads the archive's directory.
    ///
    /// # Errors
    /// Archives that are damaged or not wheels; refuses (R14) signed ones.
    pub fn open(bytes: &'data [u8]) -> Result<Self> {
        let archive = Archive::parse(bytes)?;
        let is_record = |name: &&str| name.matches('/').count() == 1 && name.ends_with(RECORD);
        let Some(record) = archive.names().find(is_record) else {
            return Err(Error::usage("this archive is not a Python wheel: it has no list of its files")
                .with_hint("unpack it, and give the programs and libraries in it one by one"));
        };
        let signature = [".jws", ".p7s"].map(|ending| format!("{record}{ending}"));
        if let Some(signature) = archive.names().find(|name| signature.iter().any(|known| known == name)) {
            return Err(Refusal::new(
                RefusalCode::Signed,
                format!("the wheel is signed ({signature}), and the signature covers its images"),
                "move the images before the wheel is signed",
            )
            .into());
        }
        Ok(Self { bytes, archive, record })
    }

    /// Names of all files, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'data str> {
        self.archive.names()
    }

    /// The first `limit` bytes of a file, or all.
    ///
    /// # Errors
    /// Damaged members, and those longer than their compressed form allows.
    pub fn read(&self, name: &str, limit: Option<u64>) -> Result<Cow<'data, [u8]>> {
        self.archive.read(name, limit)
    }

    /// The archive with other contents of some files, and their digests in the list.
    ///
    /// # Errors
    /// Damaged members; a list that does not name a replaced file exactly once; a result that differs when it is read again.
    pub fn replace(&self, replaced: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>> {
        let list = updated(&self.read(self.record, None)?, replaced)?;
        let mut contents: BTreeMap<&str, &[u8]> =
            replaced.iter().map(|(name, contents)| (name.as_str(), &contents[..])).collect();
        contents.insert(self.record, &list);
        let bytes = self.archive.with_contents(&contents)?;
        let differences = proof::compare(self.bytes, &bytes, |name, _, new| {
            let is_expected = replaced.get(name).is_some_and(|expected| expected == new);
            Ok((!is_expected).then(|| format!("{name} has other contents than were written")))
        })?;
        match differences.first() {
            None => Ok(bytes),
            Some(first) => {
                Err(Error::verification(format!("the new wheel is not what it should be: {first}"))
                    .with_hint("nothing was written; please report this wheel"))
            }
        }
    }
}
