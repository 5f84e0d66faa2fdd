//! Reading ELF: headers, tables, functions, unwind entries. Nothing here writes.

pub mod analysis;
pub mod callbacks;
pub mod code;
pub mod dynamic;
pub mod eh_frame;
pub mod file;
pub mod found_functions;
pub mod functions;
pub mod kept_relocations;
pub mod loaded_ranges;
pub(crate) mod loader_formats;
pub mod note;
pub mod relocation;
pub mod relocation_types;
pub mod section;
pub mod segment;
pub mod symbol;
