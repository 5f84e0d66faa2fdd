//! Reading ELF: headers, tables, unwind entries. Nothing here writes.

pub mod dynamic;
pub mod eh_frame;
pub mod file;
pub mod machine;
pub mod note;
pub mod relocation;
pub mod section;
pub mod segment;
pub mod symbol;
