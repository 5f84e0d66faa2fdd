//! A linker plugin: orders input sections from inside the linker.
//!
//! ld.gold loads `libreorder_plugin.so` (`-plugin`, options by `-plugin-opt`), shows it each input file, and places the
//! sections in the order that it is given. Other linkers offer less or only pretend; they are recognised by what
//! they do, and a message says what to do instead.
//!
//! | file | what it does |
//! |---|---|
//! | `abi` | the C interface |
//! | `host` | safe calls to the linker |
//! | `options` | `-plugin-opt` |
//! | `object_file` | code sections and function names of an object |
//! | `inputs` | the objects of the link |
//! | `table` | the objects as functions that traces are resolved against |
//! | `order` | traces to an order of sections |
//! | `report` | messages about it |
//! | `session` | one link from its beginning to its end |
//! | `hooks` | the functions that the linker calls |

pub mod abi;
mod hooks;
mod host;
mod inputs;
pub mod object_file;
pub mod options;
mod order;
mod report;
mod session;
mod table;

pub use hooks::onload;
