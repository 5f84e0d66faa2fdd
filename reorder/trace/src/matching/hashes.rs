//! Digests of names to functions: every name of the image is hashed as each format does it.

use super::index::{NameIndex, Unique};
use super::spelling::{base_name, root_name};
use super::{Found, Step};
use crate::formats::llvm_names::name_hash;
use crate::{NameHash, gcc_profile_id};
use reorder_image::functions::FunctionTable;

/// Functions of one image by the digest of their names.
pub(crate) struct HashIndex {
    functions: Unique<NameHash>,
}

impl HashIndex {
    pub(crate) fn new(functions: &FunctionTable<'_>, names: &NameIndex<'_>) -> Self {
        let plain = names.names().iter().flat_map(|&(name, function)| {
            // Profiles are made before the suffixes are added.
            [name, root_name(name)]
                .into_iter()
                .flat_map(|spelling| [md5(&[spelling]), gcc(spelling, None)])
                .map(move |hash| (hash, function))
        });
        let local = functions.locals().flat_map(|(function, local)| {
            qualified(local.file, local.name).map(move |hash| (hash, function))
        });
        Self { functions: Unique::of(plain.chain(local)) }
    }

    pub(crate) fn find(&self, hash: NameHash) -> Found {
        self.functions.find(&hash, Step::Hash)
    }
}

/// The digests by which profiles know a local function: with its source file, as far as that is known here.
fn qualified(file: &[u8], name: &[u8]) -> impl Iterator<Item = NameHash> + use<> {
    let root = root_name(name);
    let hashes = [file, base_name(file)].map(|file| {
        // GCC names what a compilation makes after the source file, by default.
        let stem = file.iter().rposition(|&byte| byte == b'.').map_or(file, |dot| &file[..dot]);
        [md5(&[file, b";", root]), md5(&[file, b":", root]), gcc(root, Some((file, stem)))]
    });
    hashes.into_iter().flatten()
}

fn gcc(name: &[u8], local: Option<(&[u8], &[u8])>) -> NameHash {
    NameHash::GccProfileId(gcc_profile_id(name, local))
}

fn md5(parts: &[&[u8]]) -> NameHash {
    NameHash::Md5(name_hash(&parts.concat()))
}
