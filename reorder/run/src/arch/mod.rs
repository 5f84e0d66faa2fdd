//! What tracing must know about the processor that it runs on, under the same names for each.
//!
//! Everything else of `record` and `measure` is the same on all of Linux. For a processor without a file here, `other.rs`
//! refuses every request and [`PROCESSOR`] says so beforehand.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "other.rs")]
mod host;

pub(crate) use host::*;

/// A successful mapping of a file into executable memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeMapping {
    /// First byte in memory.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) length: u64,
    /// First byte in the file.
    pub(crate) offset: u64,
    /// The file.
    pub(crate) descriptor: i32,
}
