//! Function ordering at link time.
//!
//! | module | what it is |
//! |---|---|
//! | `wrapper` | `reorder-ld`: stands in for a linker, runs the real one and adds the order |
//! | `plugin` | a linker plugin: orders input sections from inside ld.gold |
//! | `hints` | hints of the library in the options of both |
//!
//! Readers, layouts and relocation are those of `reorder`; here is only what concerns linkers.

mod hints;
pub mod plugin;
pub mod wrapper;
