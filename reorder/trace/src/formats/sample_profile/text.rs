//! The text form of LLVM's sample profiles.
//!
//! ```text
//! main:184019:0                     function, samples in it, samples at its entry
//!  4: 534                           offset of a line: samples
//!  9: 2064 _Z3bari:1471             ... and what was called there
//!  10: inline1:1000                 inlined here: function, samples in it
//!   1: 1000
//!  !CFGChecksum: 4294967295         metadata
//! [main:3 @ _Z3bari]:57:2           with its callers (CSSPGO); the last one is meant
//! ```

use super::{Profile, function};
use reorder_base::error::{Error, Result};
use reorder_base::numbers::decimal;

/// Whether the first lines at the margin are functions with two numbers, and there is nothing else between them.
pub(super) fn accepts(bytes: &[u8]) -> bool {
    const LOOKED_AT: usize = 32;
    let beginning = &bytes[..bytes.len().min(16 << 10)];
    let is_whole = beginning.len() == bytes.len();
    let mut lines: Vec<&[u8]> = beginning.split(|&byte| byte == b'\n').take(LOOKED_AT).collect();
    if !is_whole && lines.len() < LOOKED_AT {
        lines.pop(); // cut in the middle
    }
    let mut functions = 0;
    for line in lines {
        match Line::parse(line) {
            Some(Line::Function { .. }) => functions += 1,
            Some(Line::Inlined { .. } | Line::Samples) if functions == 0 => return false,
            Some(_) => {}
            None => return false,
        }
    }
    functions > 0
}

/// Adds all functions of `bytes`.
///
/// # Errors
/// The first line that is none of the format.
pub(super) fn read(bytes: &[u8], profile: &mut Profile) -> Result<()> {
    let mut offset = 0u64;
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        match Line::parse(line) {
            Some(Line::Function { name, total, head }) => profile.add(function(name), total, head),
            Some(Line::Inlined { name, total }) => profile.add(function(name), total, 0),
            Some(Line::Samples | Line::Other) => {}
            None => {
                let message = format!("line {} does not belong to a sample profile", index + 1);
                return Err(Error::malformed(offset, message)
                    .with_hint("check the profile: llvm-profdata show --sample FILE"));
            }
        }
        offset += line.len() as u64 + 1;
    }
    Ok(())
}

enum Line<'line> {
    Function { name: &'line [u8], total: u64, head: u64 },
    Inlined { name: &'line [u8], total: u64 },
    Samples,
    Other,
}

impl<'line> Line<'line> {
    fn parse(line: &'line [u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = line.trim_ascii();
        if text.is_empty() || text.starts_with(b"#") || (text.starts_with(b"!") && line.starts_with(b" ")) {
            return Some(Self::Other);
        }
        if line.starts_with(b" ") {
            return Self::parse_body(text);
        }
        let (rest, head) = split_number(text)?;
        let (name, total) = split_number(rest)?;
        Some(Self::Function { name: callee(name)?, total, head })
    }

    fn parse_body(text: &'line [u8]) -> Option<Self> {
        let colon = text.iter().position(|&byte| byte == b':')?;
        let (place, rest) = (&text[..colon], text[colon + 1..].trim_ascii_start());
        let is_place = !place.is_empty()
            && place.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.' || *byte == b'-');
        let first = rest.split(|&byte| byte == b' ').next().filter(|word| !word.is_empty())?;
        match (is_place, decimal::<u64>(first), split_number(rest)) {
            (false, ..) => None,
            (true, Some(_), _) => Some(Self::Samples),
            // Types of virtual tables that calls here go through: `<vtables> _ZTV4Base:3`.
            (true, None, _) if first.starts_with(b"<") => Some(Self::Samples),
            (true, None, Some((name, total))) => Some(Self::Inlined { name, total }),
            (true, None, None) => None,
        }
    }
}

/// The function of a context: the name after the last `@`.
fn callee(name: &[u8]) -> Option<&[u8]> {
    let bare = match name.strip_prefix(b"[").and_then(|context| context.strip_suffix(b"]")) {
        Some(context) => {
            let last = context.windows(3).rposition(|window| window == b" @ ");
            last.map_or(context, |last| &context[last + 3..])
        }
        None => name,
    };
    (!bare.is_empty() && !bare.contains(&b' ')).then_some(bare)
}

/// The text before the last colon, and the number after it.
fn split_number(text: &[u8]) -> Option<(&[u8], u64)> {
    let colon = text.iter().rposition(|&byte| byte == b':')?;
    Some((&text[..colon], decimal(text[colon + 1..].trim_ascii())?))
}
