//! The recorded-trace format: lines of text for people, `grep` and `diff`.
//!
//! ```text
//! # reorder trace 1
//! # image: /usr/bin/example
//! # build-id: 5c0ffee5
//! # run: 1
//! # process: 4711
//! # weight: 1
//! # program: /usr/bin/example
//! # argument: --help
//! # events: 2
//! # blocks: 3
//! # columns: nanoseconds address size name
//! 51230    0x1040    37    _start
//! #+ 6f1e2a9b00c4d5e7 0x0+31@51230 0x1f+6@51304
//! 88731    0x11a0    205    -
//! #+ 03b1c77a5e0912fd 0x0+18@88731
//! ```
//!
//! * The first line names the format and its version; the same line starts a further trace, so files may be
//!   concatenated.
//! * `events` is how many follow, and each line ends with a line feed, so a cut file is detected.
//!   `trace: 3 of 57` does the same for files that were written with several traces. A trace without `events` (written
//!   by hand, or by `reorder` up to 0.1) is read, but as [`Listed`](super::Evidence::Listed), because its end may be
//!   missing.
//! * Headers are `# key: value` and precede the events. `argument` repeats, in order. Unknown keys are ignored.
//! * An event is one line of columns between tabs or spaces, in order of first execution: nanoseconds since
//!   the program was executed, address as stated in the image (hexadecimal), size in bytes, name; and, where the
//!   trace comes from a format that has them, how often the function ran, and a clock without a unit. `-` stands for
//!   what is not known; an address or a name must be there.
//! * A line that begins with `#+` belongs to the event before it: the basic blocks of that function that ran, in order of
//!   first execution. Each is its distance from the function's start (hexadecimal), `+`, its size in bytes, `@`,
//!   nanoseconds since the program was executed. The word before them tells which code they are blocks of
//!   ([`CodeDigest`](reorder_image::code_digest::CodeDigest)): in a function with another digest they mean nothing. `blocks` is how many the
//!   trace has. A function without such a line ran, but which of its blocks is not known. Readers that know no blocks
//!   take these lines for comments.
//! * Instead of a function's first address, `inside:0x…` is some address in it, `runtime:0x…` one in the process,
//!   `md5:0x…` the start of its name's MD5 and `gcc:0x…` GCC's profile id.
//! * `identity` (32 hexadecimal digits) and `sample` (capacity, seed, threshold or `-`, and `command` where traces were
//!   drawn of each command line) are what merging needs to draw the same traces again.
//! * `evidence` says what the order rests on ([`Evidence`](super::Evidence)) where not every first execution was seen.
//! * `left-running` counts processes that still ran, unrecorded, when the recorded program had ended.
//! * White space, control characters, `\` and bytes that are not UTF-8 are written `\xNN` in names and header
//!   values, and so is a name that is just `-`; a name of no bytes is `\-`.

mod blocks;
mod completeness;
mod digests;
mod escape;
mod read;
mod write;

use crate::{Input, Reading};
pub use read::read;
use reorder_base::error::Result;
pub use write::{write, write_all};

/// What every recorded trace starts with; the version follows.
pub const FIRST_WORDS: &str = "# reorder trace ";

/// The version written, and the only one read.
pub const VERSION: u32 = 1;

/// The word after a sample that was drawn of each command line.
const COMMAND_STRATA: &[u8] = b"command";

/// Whether `bytes` start as every recorded trace does.
pub(crate) fn accepts(bytes: &[u8]) -> bool {
    bytes.starts_with(FIRST_WORDS.as_bytes())
}

/// [`read`] as a reader among others.
pub(crate) fn read_input(input: &Input<'_>) -> Result<Reading> {
    read(input.bytes)
}

#[cfg(test)]
mod tests;
