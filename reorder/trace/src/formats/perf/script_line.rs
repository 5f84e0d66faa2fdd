//! The lines that `perf script` prints.
//!
//! ```text
//! spin 15461/15461 [001]  3298.490096:   1003009 cpu-clock:u:  55c78453e147 phase_one+0x17 (./spin)
//! demo 15489  3300.143237920: probe_demo:main: (401219)
//! demo 15540/15540  3302.412:  page-faults:  561f02e23590 completed.0+0x0 (./demo)  7fa4c0c3a7ad _dl_start+0x3d (ld.so)
//! spin 15461  3298.490:  1 cycles:
//!         55c78453e147 phase_one+0x17 (./spin)             one line for each caller, innermost first
//!         7f1094e32249 __libc_start_call_main+0x79 (libc.so.6)
//!
//! spin 15461/15461  3298.4890: PERF_RECORD_MMAP2 15461/15461: [0x55c78453e000(0x1000) @ 0x1000 fe:00 1055 956]: r-xp spin
//! spin 15461  3298.4890: PERF_RECORD_COMM exec: spin:15461/15461
//! spin 15461  3298.4890: PERF_RECORD_FORK(15462:15462):(15461:15461)
//! ```

use super::records::Probe;
use crate::formats::lines::split_once;
use reorder_base::hexadecimal::decode;
use reorder_base::numbers::{billionths, decimal, hexadecimal};

/// One line.
pub(super) enum Line<'line> {
    Empty,
    Sample(Sample<'line>),
    /// A caller of the sample above, or the sampled instruction itself.
    Frame(Frame<'line>),
    Map(Map<'line>),
    Execution {
        process: u32,
        name: &'line [u8],
        time: u64,
    },
    Fork {
        child: u32,
        parent: u32,
        time: u64,
    },
    Lost(u64),
    /// A record that is not used.
    Other,
}

/// The first line of a sample.
pub(super) struct Sample<'line> {
    pub(super) command: &'line [u8],
    /// Process, or thread where no process is printed.
    pub(super) process: u32,
    /// In nanoseconds.
    pub(super) time: u64,
    pub(super) event: &'line str,
    /// Those on the same line, to which callers on the next lines are added.
    pub(super) frames: Vec<Frame<'line>>,
    /// How many were on the same line.
    pub(super) on_line: usize,
    pub(super) probe: Option<Probe>,
}

/// An address with what perf knows of it.
#[derive(Clone, Copy)]
pub(super) struct Frame<'line> {
    pub(super) address: u64,
    /// Without its offset.
    pub(super) symbol: Option<&'line [u8]>,
    pub(super) file: Option<&'line [u8]>,
}

pub(super) struct Map<'line> {
    pub(super) process: u32,
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) offset: u64,
    pub(super) path: &'line [u8],
    pub(super) build_id: Option<Vec<u8>>,
}

/// `None` for lines that are not perf's.
pub(super) fn parse(line: &[u8]) -> Option<Line<'_>> {
    let text = line.trim_ascii();
    if text.is_empty() || text.starts_with(b"#") {
        return Some(Line::Empty);
    }
    // A command may look like an address, but no caller has a time.
    headed_line(text).or_else(|| {
        let is_indented = line.first().is_some_and(u8::is_ascii_whitespace);
        is_indented.then(|| frame_line(text, hexadecimal)).flatten().map(Line::Frame)
    })
}

/// A sample or a record: `command process time:` and what happened.
fn headed_line(text: &[u8]) -> Option<Line<'_>> {
    let (head, time, rest) = split_at_time(text)?;
    let (command, process) = command_and_process(head)?;
    if let Some(record) = rest.strip_prefix(b"PERF_RECORD_") {
        return Some(record_line(record, time).unwrap_or(Line::Other));
    }
    let (event, rest) = event_name(rest)?;
    let frames = frames(rest);
    let on_line = frames.len();
    Some(Line::Sample(Sample { command, process, time, event, frames, on_line, probe: probe(rest) }))
}

/// What probes in user code print of themselves, under any name: `(401219)`, and at the return of a function
/// `(401234 <- 401136)`.
fn probe(rest: &[u8]) -> Option<Probe> {
    let inside = rest.trim_ascii().strip_prefix(b"(")?.strip_suffix(b")")?;
    let words: Vec<&[u8]> = inside.split(u8::is_ascii_whitespace).collect();
    match words[..] {
        [place] => address(place).map(|_| Probe::Here),
        [place, b"<-", function] => address(place).and(address(function)).map(|_| Probe::Return),
        _ => None,
    }
}

/// The text before the time, the time, and the text after it.
fn split_at_time(text: &[u8]) -> Option<(&[u8], u64, &[u8])> {
    let mut start = 0;
    for word in text.split(u8::is_ascii_whitespace) {
        // A time has no colon, so that only a word's first one can end it.
        let colon = word.iter().position(|&byte| byte == b':');
        if let Some((colon, time)) = colon.and_then(|colon| Some((colon, seconds(&word[..colon])?))) {
            return Some((text[..start].trim_ascii(), time, text[start + colon + 1..].trim_ascii_start()));
        }
        start += word.len() + 1;
    }
    None
}

/// `3298.490096` in nanoseconds.
fn seconds(word: &[u8]) -> Option<u64> {
    let (whole, fraction) = split_once(word, b".")?;
    billionths(whole, fraction)
}

/// `comm pid/tid [cpu]`; the command may have blanks, or be missing.
fn command_and_process(head: &[u8]) -> Option<(&[u8], u32)> {
    let mut head = head;
    loop {
        let start = head.iter().rposition(u8::is_ascii_whitespace).map_or(0, |blank| blank + 1);
        let word = &head[start..];
        head = head[..start].trim_ascii();
        if !word.starts_with(b"[") {
            let id = word.split(|&byte| byte == b'/').next().unwrap_or_default();
            return Some((head, decimal::<u64>(id)? as u32));
        }
    }
}

/// `[period] name:`, where the name may have colons.
fn event_name(rest: &[u8]) -> Option<(&str, &[u8])> {
    let mut rest = rest;
    loop {
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (word, after) = (&rest[..end], rest[end..].trim_ascii_start());
        if let Some(name) = word.strip_suffix(b":") {
            return std::str::from_utf8(name).ok().filter(|name| !name.is_empty()).map(|name| (name, after));
        }
        decimal::<u64>(word)?;
        rest = after;
    }
}

/// All addresses of the rest of a sample's line. One starts where the line does, after another one, or after the file
/// of another one.
fn frames(rest: &[u8]) -> Vec<Frame<'_>> {
    let mut starts = Vec::new();
    let mut may_start = true;
    let mut position = 0;
    for word in rest.split(u8::is_ascii_whitespace) {
        let is_address = may_start && address(word).is_some();
        if is_address {
            starts.push(position);
        }
        may_start = (may_start && (is_address || word.is_empty())) || word.ends_with(b")");
        position += word.len() + 1;
    }
    let ends = starts.iter().skip(1).copied().chain([rest.len()]);
    starts
        .iter()
        .zip(ends)
        .filter_map(|(&start, end)| frame_line(rest[start..end].trim_ascii(), address))
        .collect()
}

/// `address symbol+0x12 (file)`; symbol and file may be missing, and a demangled symbol may have blanks.
fn frame_line(text: &[u8], address: impl Fn(&[u8]) -> Option<u64>) -> Option<Frame<'_>> {
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    let address = address(&text[..end])?;
    let mut rest = text[end..].trim_ascii();
    let mut file = None;
    if rest.ends_with(b")")
        && let Some(open) = rest
            .windows(2)
            .rposition(|pair| pair == b" (")
            .map(|blank| blank + 1)
            .or(rest.starts_with(b"(").then_some(0))
    {
        file = Some(&rest[open + 1..rest.len() - 1]);
        rest = rest[..open].trim_ascii();
    }
    let symbol = (!rest.is_empty() && rest != b"[unknown]").then(|| without_offset(rest));
    Some(Frame { address, symbol, file: file.filter(|file| *file != b"[unknown]") })
}

fn without_offset(symbol: &[u8]) -> &[u8] {
    let plus = symbol.windows(3).rposition(|window| window == b"+0x");
    plus.filter(|&plus| plus > 0 && hexadecimal(&symbol[plus + 3..]).is_some())
        .map_or(symbol, |plus| &symbol[..plus])
}

/// At least four digits, so that no short word is taken for one; a probe's address is in parentheses.
fn address(word: &[u8]) -> Option<u64> {
    const MIN_DIGITS: usize = 4;
    let bare = word.strip_prefix(b"(").and_then(|word| word.strip_suffix(b")")).unwrap_or(word);
    let bare = bare.strip_prefix(b"0x").unwrap_or(bare);
    (bare.len() >= MIN_DIGITS).then(|| hexadecimal(bare)).flatten()
}

/// After `PERF_RECORD_`.
fn record_line(record: &[u8], time: u64) -> Option<Line<'_>> {
    let text = |prefix: &[u8]| record.strip_prefix(prefix);
    if let Some(rest) = text(b"MMAP2 ").or_else(|| text(b"MMAP ")) {
        return map(rest).map(Line::Map);
    }
    if let Some(rest) = text(b"COMM exec: ") {
        let colon = rest.iter().rposition(|&byte| byte == b':')?;
        let process = decimal::<u64>(rest[colon + 1..].split(|&byte| byte == b'/').next()?)? as u32;
        return Some(Line::Execution { process, name: &rest[..colon], time });
    }
    if let Some(rest) = text(b"FORK(") {
        let mut numbers = rest.split(|byte| !byte.is_ascii_digit()).filter_map(decimal::<u64>);
        let (child, _, parent) = (numbers.next()?, numbers.next()?, numbers.next()?);
        return Some(Line::Fork { child: child as u32, parent: parent as u32, time });
    }
    let rest = text(b"LOST")?;
    rest.split(|byte| !byte.is_ascii_digit()).filter_map(decimal::<u64>).next_back().map(Line::Lost)
}

/// `pid/tid: [0xstart(0xsize) @ offset device inode generation]: r-xp path`, or a build-id after the offset.
fn map(rest: &[u8]) -> Option<Map<'_>> {
    let process = decimal::<u64>(rest.split(|&byte| byte == b'/').next()?)? as u32;
    let open = rest.iter().position(|&byte| byte == b'[')?;
    let close = open + rest[open..].windows(2).position(|pair| pair == b"]:")?;
    let mut words = rest[open + 1..close].split(|byte| byte.is_ascii_whitespace() || b"()".contains(byte));
    let mut number = || {
        let word = words.by_ref().find(|word| !word.is_empty() && *word != b"@")?;
        hexadecimal(word.strip_prefix(b"0x").unwrap_or(word))
    };
    let (start, size, offset) = (number()?, number()?, number()?);
    let build_id = words.find(|word| !word.is_empty()).and_then(build_id);
    let after = rest[close + 2..].trim_ascii();
    let path =
        after.iter().position(u8::is_ascii_whitespace).map_or(&[][..], |blank| after[blank..].trim_ascii());
    Some(Map { process, start, size, offset, path, build_id })
}

/// `<0123…>`.
fn build_id(word: &[u8]) -> Option<Vec<u8>> {
    decode(word.strip_prefix(b"<")?.strip_suffix(b">")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_the_first_word_that_is_one() {
        let split = |text| split_at_time(text).map(|(head, time, rest)| (head.to_vec(), time, rest.to_vec()));
        let expected = |head: &[u8], rest: &[u8]| Some((head.to_vec(), 3_500_000_000, rest.to_vec()));
        assert_eq!(split(b"a:b 1  3.5: x: 4.5: y"), expected(b"a:b 1", b"x: 4.5: y"));
        assert_eq!(split(b"3.5:x"), expected(b"", b"x"));
        assert_eq!(split(b"a 1:3.5: x"), None);
        assert_eq!(split(b""), None);
    }

    #[test]
    fn lines_of_colons_are_read_once() {
        // Going back to the last blank at each colon would take hours.
        let line = vec![b':'; 8 << 20];
        assert!(parse(&line).is_none());
    }
}
