//! Python wheels: archives whose list of digests must follow when an image in them changes.
//!
//! Everything but the replaced members and the list is copied as it is, compressed data included.
//! Source: "Binary distribution format" and "Recording installed projects", packaging.python.org.

use std::collections::BTreeMap;
use std::io::{Cursor, Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use crate::error::{Error, Result};
use crate::image::refusal::{Refusal, RefusalCode};

/// First bytes of an archive with members.
const ARCHIVE_MAGIC: &[u8] = b"PK\x03\x04";
/// The list of members, with their digests and sizes.
const RECORD: &str = ".dist-info/RECORD";
/// No compressed byte stands for more than this many.
const LARGEST_EXPANSION: u64 = 1032;

/// An archive that is a wheel.
pub struct Wheel<'data> {
    archive: ZipArchive<Cursor<&'data [u8]>>,
    names: Vec<String>,
    record: String,
}

/// Whether `bytes` begin like an archive.
#[must_use]
pub fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(ARCHIVE_MAGIC)
}

fn broken(error: impl std::fmt::Display) -> Error {
    Error::malformed(0, format!("the archive cannot be read: {error}"))
}

fn file_names(archive: &ZipArchive<Cursor<&[u8]>>) -> Result<Vec<String>> {
    let names = archive.file_names().map(|name| name.map(|name| name.into_owned()).map_err(broken));
    let mut names = names.collect::<Result<Vec<String>>>()?;
    names.retain(|name| !name.ends_with('/'));
    names.sort_unstable();
    Ok(names)
}

impl<'data> Wheel<'data> {
    /// Reads the archive's directory.
    ///
    /// # Errors
    /// Archives that are damaged or no wheels; refuses (R14) signed ones.
    pub fn open(bytes: &'data [u8]) -> Result<Self> {
        let archive = ZipArchive::new(Cursor::new(bytes)).map_err(broken)?;
        let names = file_names(&archive)?;
        let is_record = |name: &&String| name.matches('/').count() == 1 && name.ends_with(RECORD);
        let Some(record) = names.iter().find(is_record).cloned() else {
            return Err(Error::usage("this archive is no Python wheel: it has no list of its files")
                .with_hint("unpack it, and give the programs and libraries in it one by one"));
        };
        let signature = [".jws", ".p7s"].map(|ending| format!("{record}{ending}"));
        if let Some(signature) = names.iter().find(|name| signature.contains(name)) {
            return Err(Refusal::new(
                RefusalCode::R14,
                format!("the wheel is signed ({signature}), and the signature covers its images"),
                "move the images before the wheel is signed",
            )
            .into());
        }
        Ok(Self { archive, names, record })
    }

    /// Names of all files, sorted.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The first `limit` bytes of a file, or all.
    ///
    /// # Errors
    /// Damaged members, and those longer than their compressed form can stand for.
    pub fn read(&mut self, name: &str, limit: Option<u64>) -> Result<Vec<u8>> {
        let member = self.archive.by_name(name).map_err(broken)?;
        let longest = member.compressed_size().saturating_add(1).saturating_mul(LARGEST_EXPANSION);
        let mut contents = Vec::new();
        let limit = limit.unwrap_or(u64::MAX);
        member.take(longest.min(limit)).read_to_end(&mut contents).map_err(broken)?;
        Ok(contents)
    }

    /// The archive with other contents of some files, and their digests in the list.
    ///
    /// # Errors
    /// Damaged members; a list that does not name a replaced file.
    pub fn replace(&mut self, replaced: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>> {
        let record = self.record.clone();
        let list = self.read(&record, None)?;
        let list = updated_record(&list, replaced)?;
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for index in 0..self.archive.len() {
            let member = self.archive.by_index_raw(index).map_err(broken)?;
            let name = member.name().map_err(broken)?.into_owned();
            let contents = match replaced.get(&name) {
                Some(contents) => contents,
                None if name == record => &list,
                None => {
                    writer.raw_copy_file(member).map_err(broken)?;
                    continue;
                }
            };
            let mut options = SimpleFileOptions::default()
                .compression_method(member.compression())
                .large_file(contents.len() as u64 > u64::from(u32::MAX) / 2);
            if let Some(time) = member.last_modified() {
                options = options.last_modified_time(time);
            }
            if let Some(mode) = member.unix_mode() {
                options = options.unix_permissions(mode);
            }
            writer.start_file(name, options).map_err(broken)?;
            writer.write_all(contents).map_err(broken)?;
        }
        Ok(writer.finish().map_err(broken)?.into_inner())
    }
}

/// The list with new digests and sizes of the replaced files; all other lines stay as they are.
fn updated_record(list: &[u8], replaced: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>> {
    let mut updated = Vec::with_capacity(list.len());
    let mut listed = 0;
    for line in list.split_inclusive(|byte| *byte == b'\n') {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(line);
        let fields = reader.records().next().transpose().map_err(broken)?;
        let name = fields.as_ref().and_then(|fields| fields.get(0));
        let Some((name, contents)) = name.and_then(|name| replaced.get_key_value(name)) else {
            updated.extend_from_slice(line);
            continue;
        };
        listed += 1;
        let digest = format!("sha256={}", URL_SAFE_NO_PAD.encode(Sha256::digest(contents)));
        let ending =
            if line.ends_with(b"\r\n") { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
        let mut writer = csv::WriterBuilder::new().terminator(ending).from_writer(Vec::new());
        writer.write_record([name.as_str(), &digest, &contents.len().to_string()]).map_err(broken)?;
        updated.extend(writer.into_inner().map_err(broken)?);
    }
    match listed == replaced.len() {
        true => Ok(updated),
        false => Err(Error::malformed(0, "the wheel's list of files does not name each of its images once")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    fn wheel(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, contents) in files {
            let options = SimpleFileOptions::default().unix_permissions(0o755);
            writer.start_file(*name, options).unwrap();
            writer.write_all(contents).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    const LIST: &[u8] = b"a/lib.so,sha256=old,3\r\n\"a/x,y.so\",sha256=kept,1\r\nn.dist-info/RECORD,,\r\n";

    #[test]
    fn the_list_follows_and_all_else_stays() {
        let bytes = wheel(&[("a/lib.so", b"old"), ("a/x,y.so", b"1"), ("n.dist-info/RECORD", LIST)]);
        let mut old = Wheel::open(&bytes).unwrap();
        let new = old.replace(&BTreeMap::from([("a/lib.so".to_owned(), b"longer".to_vec())])).unwrap();
        let mut new = Wheel::open(&new).unwrap();
        assert_eq!(new.names(), old.names());
        assert_eq!(new.read("a/lib.so", None).unwrap(), b"longer");
        assert_eq!(new.read("a/lib.so", Some(2)).unwrap(), b"lo");
        let list = String::from_utf8(new.read("n.dist-info/RECORD", None).unwrap()).unwrap();
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(b"longer"));
        assert_eq!(
            list,
            format!("a/lib.so,sha256={digest},6\r\n\"a/x,y.so\",sha256=kept,1\r\nn.dist-info/RECORD,,\r\n")
        );
    }

    #[test]
    fn archives_that_are_no_wheels_or_signed_are_refused() {
        let text = |bytes: &[u8]| Wheel::open(bytes).map(|_| ()).unwrap_err().to_string();
        assert!(text(&wheel(&[("a", b"")])).contains("no Python wheel"));
        let signed = wheel(&[("n.dist-info/RECORD", LIST), ("n.dist-info/RECORD.jws", b"")]);
        assert!(text(&signed).contains("R14"));
        assert!(text(b"PK\x03\x04").contains("cannot be read"));
        let bytes = wheel(&[("a/b.so", b"1"), ("n.dist-info/RECORD", LIST)]);
        let replaced = BTreeMap::from([("a/b.so".to_owned(), Vec::new())]);
        assert!(Wheel::open(&bytes).unwrap().replace(&replaced).is_err());
    }

    proptest::proptest! {
        #[test]
        fn damaged_archives_are_errors(position in 0_usize..600, byte: u8) {
            let mut bytes = wheel(&[("a/lib.so", b"contents of a library"), ("n.dist-info/RECORD", LIST)]);
            let position = position % bytes.len();
            bytes[position] = byte;
            if let Ok(mut wheel) = Wheel::open(&bytes) {
                for name in wheel.names().to_vec() {
                    let _ = wheel.read(&name, None);
                }
            }
        }
    }
}
