//! What reorder asks of the operating system. All `unsafe` of the library is in this crate, each with its proof.
//!
//! | for | modules |
//! |---|---|
//! | every command | [`mapped`]: inputs without a copy; [`lost_pages`]: a message when one shrinks; [`exhausted_memory`]: one when memory ends; [`write`]: outputs that are written whole or not at all; [`memory`]: what a phase freed goes back |
//! | recording | [`waiting_child`], [`tracee`], [`arch`] (the processor below ptrace), [`stops`] (why traced tasks stop), [`terminal`] |
//! | measuring | [`child`], [`waiting`], [`residence`] (the page cache), [`perf_event`] and [`fault_samples`] (the kernel's own counts), [`interruption`] |

pub mod arch;
pub mod child;
pub mod exhausted_memory;
pub mod fault_samples;
pub mod interruption;
pub mod lost_pages;
pub mod mapped;
pub mod memory;
pub mod perf_event;
pub mod residence;
pub mod stops;
pub mod terminal;
pub mod tracee;
pub mod waiting;
pub mod waiting_child;
pub mod write;

/// Bytes of a page on the systems where programs are measured; `measure` refuses others.
pub const PAGE_BYTES: u64 = 4096;
