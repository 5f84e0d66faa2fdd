//! [`Trace`] to text.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use super::escape::escape;
use super::{FIRST_WORDS, VERSION};
use crate::error::{Error, Result};
use crate::trace::{Event, Location, Trace};

/// The trace as the text of one file.
///
/// # Errors
/// Events that are neither an image address nor a name have no place in the format.
pub fn write(trace: &Trace) -> Result<String> {
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
    for (position, word) in trace.command.iter().enumerate() {
        header(&mut text, if position == 0 { "program" } else { "argument" }, word);
    }
    text.push_str("# columns: nanoseconds address size name\n");
    for event in &trace.events {
        write_event(&mut text, event)?;
    }
    Ok(text)
}

fn header(text: &mut String, key: &str, value: &[u8]) {
    let _ = write!(text, "# {key}: ");
    escape(value, text);
    text.push('\n');
}

fn write_event(text: &mut String, event: &Event) -> Result<()> {
    number(text, event.nanoseconds);
    match &event.location {
        Location::Image(address) => {
            let _ = write!(text, "{address}\t");
        }
        Location::Name(_) => text.push_str("-\t"),
        Location::NameHash(_) | Location::Runtime(_) => {
            return Err(Error::usage(format!("{} cannot be written as a recorded trace", event.location))
                .with_hint("resolve the trace against its image first"));
        }
    }
    number(text, event.size);
    match event.symbol() {
        Some(name) if !name.is_empty() => escape(name, text),
        _ => text.push('-'),
    }
    text.push('\n');
    Ok(())
}

fn number(text: &mut String, value: Option<u64>) {
    match value {
        Some(value) => {
            let _ = write!(text, "{value}\t");
        }
        None => text.push_str("-\t"),
    }
}
