//! The trace and profile systems that are read, one file or folder each.
//!
//! [`FORMATS`] is the whole of detection: the first entry that accepts a file's contents reads it. Names and endings
//! of files do not count.

mod bolt_data;
mod callgrind;
mod chromium;
mod counts;
#[cfg(test)]
mod damage;
mod dtrace;
mod first_seen;
pub(super) mod gcov;
mod image_traces;
mod lines;
mod link_map;
mod list;
mod llvm_correlate;
pub(super) mod llvm_images;
mod llvm_indexed;
pub(super) mod llvm_merged;
pub(super) mod llvm_names;
mod llvm_raw;
mod llvm_text;
mod machine_ir;
mod order_buffer;
mod perf;
mod qemu;
mod sample_profile;
mod sancov;
#[cfg(test)]
mod text_tests;
mod uftrace;
mod valgrind;
mod xray;

use std::path::Path;

use super::reading::{Input, Reading};
use super::text;
use reorder_base::error::Result;

/// A system whose files are read.
pub struct Format {
    /// Its name in messages.
    pub name: &'static str,
    /// Whether a file with these contents is of this format; looks at a bounded part of it.
    pub accepts: fn(&[u8]) -> bool,
    /// Reads a file that was accepted.
    ///
    /// A file of which a part is usable gives that part and notes; one without any usable part, an error.
    pub read: fn(&Input<'_>) -> Result<Reading>,
    /// Whether the contents leave no doubt: other files are not taken from directories unless they end in `.trace`.
    pub has_signature: bool,
    /// For formats that are a directory: whether a file beside the accepted one is read together with it.
    pub is_part: Option<fn(&Path) -> bool>,
    /// For formats that spread one run over several files: what one directory's files gave to whole runs.
    pub join: Option<fn(Vec<Reading>) -> Reading>,
}

/// All of them; formats with a signature first, then those recognised by their looks, plain lists last.
pub const FORMATS: &[Format] = &[
    Format { name: "reorder trace", accepts: text::accepts, read: text::read_input, ..SIGNED },
    Format { name: "LLVM raw profile", accepts: llvm_raw::accepts, read: llvm_raw::read, ..SIGNED },
    Format {
        name: "LLVM indexed profile",
        accepts: llvm_indexed::accepts,
        read: llvm_indexed::read,
        ..SIGNED
    },
    Format { name: "GCC .gcda", accepts: gcov::accepts, read: gcov::read, join: Some(gcov::join), ..SIGNED },
    Format { name: "Machine IR Profile", accepts: machine_ir::accepts, read: machine_ir::read, ..SIGNED },
    Format { name: "LLVM text profile", accepts: llvm_text::accepts, read: llvm_text::read, ..SIGNED },
    Format {
        name: "uftrace directory",
        accepts: uftrace::accepts,
        read: uftrace::read,
        is_part: Some(uftrace::is_part),
        ..SIGNED
    },
    Format { name: "callgrind", accepts: callgrind::accepts, read: callgrind::read, ..SIGNED },
    Format { name: "valgrind blocks", accepts: valgrind::accepts, read: valgrind::read, ..SIGNED },
    Format { name: "QEMU blocks", accepts: qemu::accepts, read: qemu::read, ..SIGNED },
    Format {
        name: "LLVM sample profile, binary",
        accepts: sample_profile::accepts_binary,
        read: sample_profile::read,
        ..SIGNED
    },
    Format {
        name: "GCC AutoFDO profile",
        accepts: sample_profile::gcc::accepts,
        read: sample_profile::gcc::read,
        ..SIGNED
    },
    Format {
        name: "XRay coverage",
        accepts: xray::coverage::accepts_signed,
        read: xray::coverage::read,
        ..SIGNED
    },
    // No signature, but header and first record leave little doubt.
    Format { name: "XRay log", accepts: xray::accepts, read: xray::read, ..SIGNED },
    Format { name: "perf.data", accepts: perf::data::accepts, read: perf::data::read, ..SIGNED },
    Format { name: "sanitizer coverage", accepts: sancov::accepts, read: sancov::read, ..SIGNED },
    Format { name: "perf script", accepts: perf::script::accepts, read: perf::script::read, ..UNSIGNED },
    Format { name: "BOLT profile", accepts: bolt_data::accepts, read: bolt_data::read, ..UNSIGNED },
    Format {
        name: "LLVM sample profile, text",
        accepts: sample_profile::accepts_text,
        read: sample_profile::read,
        ..UNSIGNED
    },
    Format {
        name: "LLVM text profile without header",
        accepts: llvm_text::accepts_without_header,
        read: llvm_text::read,
        ..UNSIGNED
    },
    Format {
        name: "clang order-file buffer",
        accepts: order_buffer::accepts,
        read: order_buffer::read,
        ..UNSIGNED
    },
    Format {
        name: "XRay coverage list",
        accepts: xray::coverage::accepts,
        read: xray::coverage::read,
        ..UNSIGNED
    },
    Format { name: "DTrace output", accepts: dtrace::accepts, read: dtrace::read, ..UNSIGNED },
    Format { name: "Chromium offsets", accepts: chromium::accepts, read: chromium::read, ..UNSIGNED },
    // Never from a directory: it is an order of layout, not of execution.
    Format { name: "link map", accepts: link_map::accepts, read: link_map::read, ..UNSIGNED },
    Format { name: "plain list", accepts: list::accepts, read: list::read, ..UNSIGNED },
];

/// The values that most entries share.
const SIGNED: Format = Format {
    name: "",
    accepts: |_| false,
    read: |_| Ok(Reading { traces: Vec::new(), notes: Vec::new() }),
    has_signature: true,
    is_part: None,
    join: None,
};

/// Text without a signature.
const UNSIGNED: Format = Format { has_signature: false, ..SIGNED };

/// The format of `bytes`; `None` when it is unknown.
pub fn detect(bytes: &[u8]) -> Option<&'static Format> {
    FORMATS.iter().find(|format| (format.accepts)(bytes))
}
