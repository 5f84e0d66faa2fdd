//! Understanding images; read only.
//!
//! In: the file's bytes. Out: headers, functions, references, pins. Guarantee: nothing that this crate reports
//! as movable is referenced by anything that is not listed.

#![forbid(unsafe_code)] // the system is asked in reorder-system alone

pub mod aarch64;

pub mod basic_blocks;
pub mod boundaries;

pub mod code_digest;
pub mod code_reference;
pub mod decode;
pub(crate) mod decoded_atom;
pub mod elf;
mod entry_rounds;
pub mod exception_table;
mod frame_pointer;
pub mod functions;
pub mod macho;
mod mapped_bytes;
pub mod ordinary_alignment;
pub mod origins;
pub mod pins;
mod reader;
pub mod references;
mod stored_distances;
