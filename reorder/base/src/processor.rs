//! The processors that reorder distinguishes.

/// A processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// x86-64, in 64-bit mode.
    X86_64,
    /// AArch64, little-endian.
    Aarch64,
    /// Any other: its code is neither decoded nor written.
    Other,
}
