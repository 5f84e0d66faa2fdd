//! The operating-system services that all commands of reorder share.
//!
//! Inputs are mapped ([`mapped`]), and a mapped file that shrinks ends the process with a message ([`lost_pages`]). Outputs
//! are written whole or not at all ([`write`]). Memory that a phase freed is returned to the system ([`memory`]).

pub mod lost_pages;
pub mod mapped;
pub mod memory;
pub mod write;
