//! The tables of a Mach-O image after its functions have moved.
//!
//! In: the image, the address map, and a copy of the image in which the sections of code and data are already rewritten.
//! Out: a whole image: unwind information, entry, identity, `__LINKEDIT` and signature follow the map. Guarantee: apart from
//! these tables and the load commands that name them, nothing of the copy is changed.

mod entry;
mod fields;
pub mod finish;
mod identity;
mod link_edit;
mod signature;
mod symbols;
pub mod unwind;
