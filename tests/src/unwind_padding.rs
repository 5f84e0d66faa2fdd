//! Bytes of unwind entries that say nothing: those after the last instruction of an entry.
//!
//! In: the contents of a section `.eh_frame` whose addresses have four bytes, as all compilers write it. Out: ranges of bytes
//! that pad entries, and whether other bytes in their place would say nothing either. Read without code of the verifier.
//! Source: Linux Standard Base 5.0, "Exception Frames"; DWARF 5, section 6.4.2.

use std::ops::Range;

/// Instructions that only say where later ones hold, or that nothing does: without an instruction after them, no row differs.
const SAY_NOTHING: [u8; 6] = [0x00, 0x01, 0x02, 0x03, 0x04, 0x0a];

/// The padding of each entry, ascending; entries of unknown form have none.
pub fn paddings(section: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(length) = u32_at(section, at).filter(|length| (1..u32::MAX).contains(length)) {
        let end = at + 4 + length as usize;
        let Some(entry) = section.get(..end) else { break };
        found.extend(padding(entry, at));
        at = end;
    }
    found
}

/// Whether `bytes`, at the end of an entry, say nothing.
pub fn says_nothing(bytes: &[u8]) -> bool {
    let mut at = 0;
    while at < bytes.len() {
        match next(bytes, at) {
            Some((end, false)) => at = end,
            _ => return false,
        }
    }
    true
}

/// The padding of the entry that starts at `start` and ends with the bytes.
fn padding(bytes: &[u8], start: usize) -> Option<Range<usize>> {
    let mut at = match u32_at(bytes, start + 4)? {
        0 => after_common(bytes, start)?,
        distance => {
            let common = (start + 4).checked_sub(distance as usize)?;
            // Start and range; then the data that the common entry announces with `z`.
            match *bytes.get(common + 9)? {
                b'z' => after_block(bytes, start + 16)?,
                _ => start + 16,
            }
        }
    };
    let mut last = at;
    while at < bytes.len() {
        let (end, says_something) = next(bytes, at)?;
        at = end;
        if says_something {
            last = end;
        }
    }
    (last < bytes.len()).then_some(last..bytes.len())
}

/// Where the instructions of a common entry start.
fn after_common(bytes: &[u8], start: usize) -> Option<usize> {
    let augmentation = start + 9;
    let length = bytes.get(augmentation..)?.iter().position(|byte| *byte == 0)?;
    let mut at = augmentation + length + 1;
    // Factors of code and data, and the return address.
    for _ in 0..3 {
        at = after_number(bytes, at)?;
    }
    match bytes.get(augmentation)? {
        b'z' => after_block(bytes, at),
        _ => Some(at),
    }
}

/// The end of the instruction at `at`, and whether it says something.
fn next(bytes: &[u8], at: usize) -> Option<(usize, bool)> {
    let opcode = *bytes.get(at)?;
    let at = at + 1;
    let end = match (opcode >> 6, opcode) {
        (1 | 3, _) | (0, 0x00 | 0x0a | 0x0b | 0x2d) => at,
        (2, _) | (0, 0x06..=0x08 | 0x0d | 0x0e | 0x13 | 0x2e) => after_number(bytes, at)?,
        (0, 0x02) => at + 1,
        (0, 0x03) => at + 2,
        (0, 0x01 | 0x04) => at + 4,
        (0, 0x05 | 0x09 | 0x0c | 0x11 | 0x12 | 0x14 | 0x15 | 0x2f) => {
            after_number(bytes, after_number(bytes, at)?)?
        }
        (0, 0x0f) => after_block(bytes, at)?,
        (0, 0x10 | 0x16) => after_block(bytes, after_number(bytes, at)?)?,
        _ => return None,
    };
    let says_something = opcode >> 6 != 1 && !SAY_NOTHING.contains(&opcode);
    (end <= bytes.len()).then_some((end, says_something))
}

/// The end of a number in LEB128.
fn after_number(bytes: &[u8], at: usize) -> Option<usize> {
    let length = bytes.get(at..)?.iter().position(|byte| byte & 0x80 == 0)?;
    Some(at + length + 1)
}

/// The end of a block whose length comes first, in one byte.
fn after_block(bytes: &[u8], at: usize) -> Option<usize> {
    let length = *bytes.get(at)?;
    let end = at + 1 + usize::from(length);
    (length < 0x80 && end <= bytes.len()).then_some(end)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{paddings, says_nothing};

    #[test]
    fn what_pads_entries_is_found() {
        let common =
            [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];
        let own = [20, 0, 0, 0, 28, 0, 0, 0, 0, 16, 0, 0, 9, 0, 0, 0, 0, 0x41, 0x0e, 0x00, 0x42, 0, 0, 0];
        let section = [&common[..], &own[..], &[0; 4]].concat();
        // The zero after 0x0e is its operand; nothing follows the last advance.
        assert_eq!(paddings(&section), [22..24, 44..48]);
        assert!(says_nothing(&[0x41, 4, 1, 0, 0, 0, 0]) && says_nothing(&[]));
        assert!(!says_nothing(&[0, 0x0e, 16]) && !says_nothing(&[4, 0]) && !says_nothing(&[0x80, 0]));
    }
}
