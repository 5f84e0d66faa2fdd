//! Proves that one image is another with its functions moved, without trusting whoever moved them.
//!
//! Nothing here uses the readers, the analysis or the relocator of this crate: what they misunderstand must not
//! be misunderstood again by their judge.

mod bytes;
mod elf_view;
pub mod recover;
mod symbol_walk;
mod unwind_walk;

pub use recover::{AddressMoves, Move, recover_moves};
