//! Digests of names to functions: every name of the image is hashed as each format does it.

use md5::{Digest as _, Md5};

use super::index::{NameIndex, Unique, local_functions};
use super::spelling::{base_name, root_name};
use super::{Found, Step};
use crate::image::functions::{FunctionIndex, FunctionTable};
use crate::trace::NameHash;

/// Functions of one image by the digest of their names.
pub(in crate::trace) struct HashIndex {
    functions: Unique<NameHash>,
}

impl HashIndex {
    pub(in crate::trace) fn new(functions: &FunctionTable<'_>, names: &NameIndex<'_>) -> Self {
        let plain = names.names().iter().flat_map(|&(name, function)| {
            // Profiles are made before the suffixes are added.
            [name, root_name(name)].map(|spelling| (md5(&[spelling]), function))
        });
        let local =
            local_functions(functions).flat_map(|(file, name, function)| qualified(file, name, function));
        Self { functions: Unique::of(plain.chain(local)) }
    }

    pub(in crate::trace) fn find(&self, hash: NameHash) -> Found {
        self.functions.find(&hash, Step::Hash)
    }
}

/// The names under which LLVM's profiles know a local function: the file in front, as far as it is known here.
fn qualified(
    file: &[u8],
    name: &[u8],
    function: FunctionIndex,
) -> impl Iterator<Item = (NameHash, FunctionIndex)> + use<> {
    let files = [file, base_name(file)];
    let hashes = files.map(|file| [md5(&[file, b";", root_name(name)]), md5(&[file, b":", root_name(name)])]);
    hashes.into_iter().flatten().map(move |hash| (hash, function))
}

/// The first eight bytes of the digest, little endian.
fn md5(parts: &[&[u8]]) -> NameHash {
    let mut digest = Md5::new();
    parts.iter().for_each(|part| digest.update(part));
    let bytes = digest.finalize();
    NameHash::Md5(bytes.iter().take(8).rev().fold(0, |hash, &byte| hash << 8 | u64::from(byte)))
}
