//! The processors whose code can be checked.

/// The processor that an image is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processor {
    /// Words of four bytes.
    Aarch64,
    /// Instructions of 1 to 15 bytes.
    X86_64,
}
