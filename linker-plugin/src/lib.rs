//! Function ordering at link time.
//!
//! | module | what it is |
//! |---|---|
//! | `wrapper` | `reorder-ld`: stands in for a linker, runs the real one and adds the order |
//! | `plugin` | a linker plugin: orders input sections from inside ld.gold |
//! | `hints` | turns the library's hints into text that names the options of the wrapper or the plugin |
//!
//! This crate has only what concerns linkers; readers, layouts and relocation come from the crates of `reorder`.

mod hints;
pub mod plugin;
pub mod wrapper;
