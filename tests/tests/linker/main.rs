//! Links through `reorder-ld` and the linker plugin, with the linkers themselves.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod dialects;
mod entry_points;
mod failures;
mod layout_positions;
mod link_maps;
mod lto;
mod order_files;
mod plugin;
mod plugin_words;
mod stripped;
mod surroundings;
mod wrapper;
