//! Lines of a text with their offsets.

/// Each line without its end, after its offset in `bytes`.
pub fn lines(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut offset = 0;
    bytes.split(|&byte| byte == b'\n').map(move |line| {
        let start = offset;
        offset += line.len() as u64 + 1;
        (start, line.strip_suffix(b"\r").unwrap_or(line))
    })
}
