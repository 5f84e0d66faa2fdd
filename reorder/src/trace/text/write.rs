//! [`Trace`] to text.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use layout_algos::sample::{Identity, Priority};

use super::escape::escape;
use super::{FIRST_WORDS, VERSION};
use crate::trace::{Draw, Event, Evidence, Location, NameHash, Strata, Trace};

/// The trace as the text of one file.
pub fn write(trace: &Trace) -> String {
    let mut text = String::with_capacity(256 + trace.events.len() * 48);
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{FIRST_WORDS}{VERSION}");
    if let Some(path) = &trace.image.path {
        header(&mut text, "image", path.as_os_str().as_bytes());
    }
    if let Some(build_id) = &trace.image.build_id {
        text.push_str("# build-id: ");
        build_id.iter().for_each(|byte| {
            let _ = write!(text, "{byte:02x}");
        });
        text.push('\n');
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
    for (position, word) in trace.command.iter().enumerate() {
        header(&mut text, if position == 0 { "program" } else { "argument" }, word);
    }
    let is_counted = trace.events.iter().any(|event| event.count.is_some() || event.tick.is_some());
    text.push_str("# columns: nanoseconds address size name");
    text.push_str(if is_counted { " count tick\n" } else { "\n" });
    for event in &trace.events {
        write_event(&mut text, event);
        if is_counted {
            text.push('\t');
            number(&mut text, event.count);
            text.push('\t');
            number(&mut text, event.tick);
        }
        text.push('\n');
    }
    text
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
