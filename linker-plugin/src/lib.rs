//! Function ordering inside the linker.
