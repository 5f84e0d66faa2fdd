//! Functions of one image, found by what their code looks like.

use super::index::Unique;
use super::{Found, Step};
use reorder_image::code_digest::{CodeDigest, FunctionDigest, FunctionDigests};
use reorder_image::functions::FunctionTable;

/// The functions of one image by their digests.
pub(crate) struct DigestIndex {
    with_called: Unique<FunctionDigest>,
    own: Unique<CodeDigest>,
}

impl DigestIndex {
    /// Reads the code of all functions.
    pub(crate) fn new(functions: &FunctionTable<'_>) -> Self {
        let digests = FunctionDigests::of_all(functions);
        Self {
            with_called: Unique::of(digests.iter().map(|(function, digest)| (digest, function))),
            own: Unique::of(digests.iter().map(|(function, digest)| (digest.own, function))),
        }
    }

    /// The function with this digest. Where what it calls has changed, its own code must be like no other's.
    pub(crate) fn find(&self, digest: FunctionDigest) -> Found {
        match self.with_called.find(&digest, Step::CodeAndCalled) {
            Found::Nowhere => self.own.find(&digest.own, Step::Code),
            found => found,
        }
    }
}
