//! Results of earlier links, by content.
//!
//! One file an entry, named by the digest of what it depends on. No entry is required: one that is missing, truncated or
//! of another version costs a link, and failures to write one are not reported.

use std::path::PathBuf;
use std::time::SystemTime;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::contents::{Digest, digest_of};

/// Entries beyond this many bytes in all are dropped, the oldest first: relocated images are as large as programs.
const MAX_BYTES: u64 = 2 << 30;

/// A directory of entries.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// The cache in `directory`, which is made when it is first written.
    #[must_use]
    pub(crate) fn in_directory(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The value that was put in for `key`.
    #[must_use]
    pub(crate) fn get<Value: DeserializeOwned>(&self, key: &Digest) -> Option<Value> {
        let text = std::fs::read(self.file(key, "json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Remembers `value` for `key`.
    pub(crate) fn put(&self, key: &Digest, value: &impl Serialize) {
        let Ok(text) = serde_json::to_vec(value) else { return };
        if std::fs::create_dir_all(&self.directory).is_ok() {
            let _ = reorder_system::write::whole(&self.file(key, "json"), &text);
        }
    }

    /// Where contents of this digest are, if they are kept.
    #[must_use]
    pub(crate) fn attachment(&self, digest: &Digest) -> PathBuf {
        self.file(digest, "file")
    }

    /// Keeps `contents`, for entries that name them by their digest; failures are ignored.
    #[must_use]
    pub(crate) fn attach(&self, contents: &[u8]) -> Option<Digest> {
        let digest = digest_of(contents);
        std::fs::create_dir_all(&self.directory).ok()?;
        reorder_system::write::whole(&self.attachment(&digest), contents).ok()?;
        Some(digest)
    }

    /// Drops the oldest entries when there are too many.
    pub(crate) fn prune(&self) {
        self.prune_to(MAX_BYTES);
    }

    fn prune_to(&self, most_bytes: u64) {
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                // The directory is the user's to choose; other files in it are not ours.
                if !is_entry(&entry.file_name()) {
                    return None;
                }
                let metadata = entry.metadata().ok().filter(std::fs::Metadata::is_file)?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            })
            .collect();
        files.sort();
        let mut bytes: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (_, length, path) in files {
            if bytes <= most_bytes {
                break;
            }
            let _ = std::fs::remove_file(path);
            bytes -= length;
        }
    }

    fn file(&self, key: &Digest, kind: &str) -> PathBuf {
        self.directory.join(format!("{}.{kind}", key.0))
    }
}

/// Whether a file is called as entries are: 64 hexadecimal digits and one of two kinds.
fn is_entry(name: &std::ffi::OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let digits = name.strip_suffix(b".json").or_else(|| name.strip_suffix(b".file"));
    digits.is_some_and(|digits| digits.len() == 64 && digits.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_of_the_directory_stay() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::in_directory(directory.path().to_path_buf());
        let kept = cache.attach(b"contents").unwrap();
        cache.put(&kept, &1);
        let strangers = ["thesis.tex", "0123.json", &format!("{}.txt", "a".repeat(64)), &"a".repeat(64)];
        for name in strangers {
            std::fs::write(directory.path().join(name), "precious").unwrap();
        }
        cache.prune_to(0);
        assert!(!cache.attachment(&kept).exists() && cache.get::<u32>(&kept).is_none());
        for name in strangers {
            assert!(directory.path().join(name).exists(), "{name}");
        }
    }
}
