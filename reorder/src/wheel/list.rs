//! The list of a wheel's files, with their digests and sizes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use reorder_base::error::{Error, Result};

/// The digest of a file, in the form of the list.
pub(super) fn digest(contents: &[u8]) -> String {
    format!("sha256={}", URL_SAFE_NO_PAD.encode(Sha256::digest(contents)))
}

/// The name of the member that a line describes.
pub(super) fn plain(name: &str) -> &str {
    name.trim_start_matches("./")
}

pub(super) fn broken(error: impl std::fmt::Display) -> Error {
    Error::malformed(0, format!("the wheel's list of files cannot be read: {error}"))
}

/// The list with new digests and sizes of the replaced files; all other lines are unchanged.
pub(super) fn updated(list: &[u8], replaced: &BTreeMap<String, Vec<u8>>) -> Result<Vec<u8>> {
    let mut updated = Vec::with_capacity(list.len());
    let mut listed = 0;
    for line in list.split_inclusive(|byte| *byte == b'\n') {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(line);
        let fields = reader.records().next().transpose().map_err(broken)?;
        let name = fields.as_ref().and_then(|fields| fields.get(0));
        let Some((name, contents)) = name.and_then(|name| Some((name, replaced.get(plain(name))?))) else {
            updated.extend_from_slice(line);
            continue;
        };
        listed += 1;
        let ending =
            if line.ends_with(b"\r\n") { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
        let mut writer = csv::WriterBuilder::new().terminator(ending).from_writer(Vec::new());
        writer.write_record([name, &digest(contents), &contents.len().to_string()]).map_err(broken)?;
        updated.extend(writer.into_inner().map_err(broken)?);
    }
    match listed == replaced.len() {
        true => Ok(updated),
        false => Err(Error::malformed(0, "the wheel's list of files does not name each of its images once")
            .with_hint(
                "unpack and pack it again, which writes the list: wheel unpack FILE, wheel pack DIRECTORY",
            )),
    }
}
