//! Arbitrary bytes as one word of text, and back.

use reorder_base::hexadecimal;

/// `bytes` without white space, control characters or invalid UTF-8.
pub(super) fn escape(bytes: &[u8], into: &mut String) {
    match bytes {
        b"-" => return into.push_str(r"\x2d"),
        b"" => return into.push_str(EMPTY),
        _ => {}
    }
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character == '\\' || character.is_whitespace() || character.is_control() {
                let mut buffer = [0; 4];
                character.encode_utf8(&mut buffer).bytes().for_each(|byte| push_byte(byte, into));
            } else {
                into.push(character);
            }
        }
        chunk.invalid().iter().for_each(|&byte| push_byte(byte, into));
    }
}

fn push_byte(byte: u8, into: &mut String) {
    into.push_str(r"\x");
    into.push_str(&hexadecimal::encode(&[byte]));
}

/// A word of no bytes.
const EMPTY: &str = r"\-";

/// Reverses [`escape`]; `None` for a backslash that does not start an escape.
pub(super) fn unescape(word: &[u8]) -> Option<Vec<u8>> {
    if word == EMPTY.as_bytes() {
        return Some(Vec::new());
    }
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        if first != b'\\' {
            bytes.push(first);
            rest = after;
            continue;
        }
        let (escape, after) = after.split_at_checked(3)?;
        let [b'x', high, low] = *escape else { return None };
        bytes.push(hexadecimal::byte([high, low])?);
        rest = after;
    }
    Some(bytes)
}
