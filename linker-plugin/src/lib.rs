//! Function ordering inside the linker: empty until the wrapper and the plugin are written.
