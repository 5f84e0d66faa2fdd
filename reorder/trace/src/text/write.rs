//! [`Trace`] to text.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use layout_algos::sample::{Identity, Priority};

use super::blocks;
use super::completeness::Part;
use super::digests;
use super::escape::escape;
use super::{FIRST_WORDS, VERSION};
use crate::{Draw, Event, Evidence, Location, NameHash, Strata, Trace};
use reorder_base::hexadecimal::encode;

/// The trace as the text of one file.
pub fn write(trace: &Trace) -> String {
    let mut text = String::with_capacity(length(trace));
    write_into(&mut text, trace, None);
    text
}

/// Traces as the text of one file, which says how many they are.
pub fn write_all(traces: &[Trace]) -> String {
    let mut text = String::with_capacity(traces.iter().map(length).sum());
    for (number, trace) in (1..).zip(traces) {
        let part = Part { number, count: traces.len() as u64 };
        write_into(&mut text, trace, (traces.len() > 1).then_some(part));
    }
    text
}

/// About how long its text is.
fn length(trace: &Trace) -> usize {
    256 + trace.events.len() * 48 + trace.block_count() as usize * 20 + digests::count(trace) * 37
}

fn write_into(text: &mut String, trace: &Trace, part: Option<Part>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{FIRST_WORDS}{VERSION}");
    if let Some(Part { number, count }) = part {
        let _ = writeln!(text, "# trace: {number} of {count}");
    }
    if let Some(path) = &trace.image.path {
        header(text, "image", path.as_os_str().as_bytes());
    }
    if let Some(build_id) = &trace.image.build_id {
        let _ = writeln!(text, "# build-id: {}", encode(build_id));
    }
    let _ = writeln!(text, "# run: {}", trace.run);
    if let Some(process) = trace.process {
        let _ = writeln!(text, "# process: {process}");
    }
    let _ = writeln!(text, "# weight: {}", trace.weight);
    if let Some(Identity(identity)) = trace.identity {
        let _ = writeln!(text, "# identity: {identity:032x}");
    }
    if let Some(Draw { capacity, strata, seed, threshold }) = trace.draw {
        let _ = write!(text, "# sample: {capacity} {seed} ");
        let _ = match threshold {
            Some(Priority(threshold)) => write!(text, "{threshold:032x}"),
            None => write!(text, "-"),
        };
        text.push_str(if strata == Strata::Command { " command\n" } else { "\n" });
    }
    if trace.evidence != Evidence::Exact {
        let _ = writeln!(text, "# evidence: {}", trace.evidence.name());
    }
    if trace.left_running > 0 {
        let _ = writeln!(text, "# left-running: {}", trace.left_running);
    }
    for (position, word) in trace.command.iter().enumerate() {
        header(text, if position == 0 { "program" } else { "argument" }, word);
    }
    let is_counted = trace.events.iter().any(|event| event.count.is_some() || event.tick.is_some());
    let _ = writeln!(text, "# events: {}", trace.events.len());
    let blocks = trace.block_count();
    if blocks > 0 {
        let _ = writeln!(text, "# blocks: {blocks}");
    }
    text.push_str("# columns: nanoseconds address size name");
    text.push_str(if is_counted { " count tick\n" } else { "\n" });
    for event in &trace.events {
        write_event(text, event);
        if is_counted {
            text.push('\t');
            number(text, event.count);
            text.push('\t');
            number(text, event.tick);
        }
        text.push('\n');
        digests::write(text, event.digest);
        blocks::write(text, event.blocks.as_deref());
    }
}

fn header(text: &mut String, key: &str, value: &[u8]) {
    let _ = write!(text, "# {key}: ");
    escape(value, text);
    text.push('\n');
}

fn write_event(text: &mut String, event: &Event) {
    number(text, event.nanoseconds);
    text.push('\t');
    // Writing to a string cannot fail.
    match &event.location {
        Location::Image(address) => {
            let _ = write!(text, "{address}");
        }
        Location::Inside(address) => {
            let _ = write!(text, "inside:{address}");
        }
        Location::Runtime(address) => {
            let _ = write!(text, "runtime:{address}");
        }
        Location::NameHash(NameHash::Md5(hash)) => {
            let _ = write!(text, "md5:{hash:#x}");
        }
        Location::NameHash(NameHash::GccProfileId(id)) => {
            let _ = write!(text, "gcc:{id:#x}");
        }
        Location::Name(_) => text.push('-'),
    }
    text.push('\t');
    number(text, event.size);
    text.push('\t');
    match event.symbol() {
        Some(name) => escape(name, text),
        None => text.push('-'),
    }
}

fn number(text: &mut String, value: Option<u64>) {
    match value {
        Some(value) => {
            let _ = write!(text, "{value}");
        }
        None => text.push('-'),
    }
}
