//! Input sections of a link, from the map that lld writes with `-Map`.
//!
//! Only the map tells which alignment each function's section asked for; the linked image does not.

/// One input section in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputSection {
    /// Where the link put it.
    pub address: u64,
    /// Size in bytes; never zero.
    pub size: u64,
    /// A power of two.
    pub alignment: u64,
}

impl InputSection {
    /// One past the last byte.
    #[must_use]
    pub fn end(self) -> u64 {
        self.address + self.size
    }
}

/// The nonempty input sections of the output section `.text`, in link order.
///
/// # Errors
/// A map without `.text`, or one whose sections overlap.
pub fn text_sections(map: &str) -> Result<Vec<InputSection>, String> {
    // VMA, LMA, size, alignment; then, each eight columns further right: output sections, input sections, symbols.
    let depth = |rest: &str| (rest.len() - rest.trim_start().len()) / 8;
    let mut sections = Vec::new();
    let mut in_text = false;
    let mut seen_text = false;
    for line in map.lines().skip(1) {
        let Some((row, rest)) = row(line) else { continue };
        if depth(rest) == 0 {
            in_text = rest.trim() == ".text";
            seen_text |= in_text;
        } else if in_text && row.size > 0 && depth(rest) == 1 {
            sections.push(row);
        }
    }
    if !seen_text {
        return Err("the link map has no .text".to_owned());
    }
    match sections.windows(2).find(|pair| pair[0].end() > pair[1].address) {
        Some(pair) => Err(format!("input sections overlap at {:#x}", pair[1].address)),
        None => Ok(sections),
    }
}

/// The figures of one line and what follows the space behind them.
fn row(line: &str) -> Option<(InputSection, &str)> {
    let mut rest = line;
    let mut words = [""; 4];
    for word in &mut words {
        rest = rest.trim_start();
        let end = rest.find(' ')?;
        (*word, rest) = rest.split_at(end);
    }
    let hexadecimal = |word: &str| u64::from_str_radix(word, 16).ok();
    let alignment: u64 = words[3].parse().ok()?;
    let section = InputSection {
        address: hexadecimal(words[0])?,
        size: hexadecimal(words[2])?,
        alignment: alignment.max(1),
    };
    Some((section, rest.strip_prefix(' ')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
             VMA              LMA     Size Align Out     In      Symbol
           57000            57000      100    16 .rodata
           57000            57000      100    16         a.o:(.rodata)
           58000            58000       70    16 .text
           58000            58000       22    16         a.o:(.text)
           58000            58000       22     1                 start(int)
           58022            58022        0     1         b.o:(.text)
           58030            58030       40    32         b.o:(.text.f)
           58080            58080       40    16 .init
           58080            58080       40     4         b.o:(.init)
";

    #[test]
    fn only_text_with_bytes_is_listed() {
        let expected = [
            InputSection { address: 0x58000, size: 0x22, alignment: 16 },
            InputSection { address: 0x58030, size: 0x40, alignment: 32 },
        ];
        assert_eq!(text_sections(MAP), Ok(expected.to_vec()));
    }

    #[test]
    fn maps_without_text_and_with_overlaps_are_errors() {
        assert!(text_sections("VMA LMA\n").is_err());
        assert!(text_sections(&MAP.replace("58030            58030", "58020            58020")).is_err());
    }
}
