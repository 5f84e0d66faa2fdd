//! What tracing must know about the processor that it runs on, under the same names for each.
//!
//! Everything else of `record` and `measure` is the same on all of Linux. For a processor without a file here, `other.rs`
//! refuses every request and [`PROCESSOR`] says so beforehand.

#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "other.rs")]
mod host;

pub use host::*;

/// A successful mapping of a file into executable memory.
#[derive(Clone, Copy, Debug)]
pub struct CodeMapping {
    /// First byte in memory.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// First byte in the file.
    pub offset: u64,
    /// The file.
    pub descriptor: i32,
}
