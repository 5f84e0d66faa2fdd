//! The lines that mean something, and the numbers in them.

use reorder_base::error::{Error, Result};
use reorder_base::numbers::in_radix;

/// What is left of a file, line by line, blank lines and comments left out.
pub(super) struct Lines<'data> {
    bytes: &'data [u8],
    /// The next line that means something.
    next: Option<&'data [u8]>,
    /// Where it starts, or the end.
    start: usize,
    /// Where the line after it starts.
    end: usize,
}

impl<'data> Lines<'data> {
    pub(super) fn new(bytes: &'data [u8]) -> Self {
        let mut lines = Self { bytes, next: None, start: 0, end: 0 };
        lines.advance();
        lines
    }

    /// Where the next line starts.
    pub(super) fn offset(&self) -> u64 {
        self.start as u64
    }

    /// The next line without moving on.
    pub(super) fn peek(&self) -> Option<&'data [u8]> {
        self.next
    }

    /// A line that is a number; `what` is for the message.
    pub(super) fn number(&mut self, what: &str) -> Result<u64> {
        let at = self.offset();
        match self.next() {
            Some(line) => number(line)
                .ok_or_else(|| Error::malformed(at, format!("\"{}\" is not {what}", abbreviated(line)))),
            None => Err(Error::malformed(at, format!("the file ends where {what} is expected"))),
        }
    }

    fn advance(&mut self) {
        self.next = None;
        while self.next.is_none() && self.end < self.bytes.len() {
            self.start = self.end;
            let rest = &self.bytes[self.start..];
            let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            self.end = (self.start + length + 1).min(self.bytes.len());
            let line = rest[..length].trim_ascii_end();
            self.next = Some(line).filter(|line| !line.is_empty() && !line.starts_with(b"#"));
        }
        if self.next.is_none() {
            self.start = self.bytes.len();
        }
    }
}

impl<'data> Iterator for Lines<'data> {
    type Item = &'data [u8];

    fn next(&mut self) -> Option<&'data [u8]> {
        let line = self.next?;
        self.advance();
        Some(line)
    }
}

/// As much of a line as fits a message.
fn abbreviated(line: &[u8]) -> String {
    const MAX_LENGTH: usize = 40;
    match line.get(..MAX_LENGTH) {
        Some(beginning) if line.len() > MAX_LENGTH => format!("{}...", beginning.escape_ascii()),
        _ => line.escape_ascii().to_string(),
    }
}

/// A number with C's prefixes: `0x` hexadecimal, `0b` binary, `0o` or a leading `0` octal.
pub(super) fn number(line: &[u8]) -> Option<u64> {
    match line {
        [b'0', b'x' | b'X', digits @ ..] => in_radix(digits, 16),
        [b'0', b'b' | b'B', digits @ ..] => in_radix(digits, 2),
        [b'0', b'o', digits @ ..] => in_radix(digits, 8),
        [b'0', digits @ ..] if digits.first().is_some_and(u8::is_ascii_digit) => in_radix(digits, 8),
        _ => in_radix(line, 10),
    }
}
