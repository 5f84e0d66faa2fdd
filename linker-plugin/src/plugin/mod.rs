//! A linker plugin: orders input sections from inside the linker.
