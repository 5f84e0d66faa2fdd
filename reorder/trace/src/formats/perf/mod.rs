//! Recordings of Linux `perf`: the file that `perf record` writes ([`data`]) and what `perf script` prints of it
//! ([`script`]).
//!
//! ```text
//! samples, faults, probes ──> Sightings (process, address, time)
//!                                │  Processes: address → mapping → offset in a file
//!                                v
//!                             Images: offset → address as stated in the image, and its function
//! ```
//!
//! Probes at function starts give exact entries, page faults whose address is that of the instruction the first touch
//! of each page of code, and any other event samples. Each caller in a call chain is a function that was entered by
//! then, the outermost first.

mod container;
pub(super) mod data;
mod images;
mod processes;
mod records;
mod repair;
pub(super) mod script;
mod script_line;
mod sightings;

use sightings::Kind;

use crate::Name;

/// What the event called `name` means, and which function it is about.
fn interpret_event(name: &str, number: u32) -> Meaning {
    let bare = without_modifier(name);
    if let Some((group, event)) = bare.split_once(':')
        && group.starts_with("probe_")
    {
        // `perf probe` marks probes at a function's end. It numbers further ones of the same function, which cannot be
        // distinguished from a function whose name ends so: the name is kept.
        return match event.strip_suffix("__return") {
            Some(_) => Meaning::Return,
            None => Meaning::Code(Kind::Entry, Some(event.into())),
        };
    }
    // `page-faults/period=1/u` is how perf takes options of an event.
    match bare.split('/').next().unwrap_or_default() {
        "page-faults" | "faults" | "minor-faults" | "major-faults" => Meaning::Code(Kind::Page, None),
        _ => Meaning::Code(Kind::Sample(number), None),
    }
}

enum Meaning {
    Code(Kind, Option<Name>),
    /// A function returned; when it was entered is not known.
    Return,
}

/// `cycles` for `cycles:upp`.
fn without_modifier(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((event, modifier))
            if !event.is_empty() && modifier.bytes().all(|byte| b"ukhGHpPSDWeI".contains(&byte)) =>
        {
            if event.starts_with("probe_") && !event.contains(':') { name } else { event }
        }
        _ => name,
    }
}
