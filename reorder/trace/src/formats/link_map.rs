//! Link maps of Apple's linkers (`ld -map`, Xcode's `LD_GENERATE_MAP_FILE`): the functions of an image as they are laid
//! out, with their sizes.
//!
//! ```text
//! # Path: /build/App
//! # Arch: arm64
//! # Object files:
//! [  1] /build/main.o
//! # Sections:
//! # Address    Size        Segment  Section
//! 0x100003F50  0x00000034  __TEXT   __text
//! # Symbols:
//! # Address    Size        File  Name
//! 0x100003F50  0x00000034  [  1] _main
//! # Dead Stripped Symbols:
//! <<dead>>     0x00000018  [  2] _unused
//! ```

use super::first_seen::FirstSeen;
use super::image_traces::image_at;
use super::lines::{lines, split_once};
pub(super) use crate::link_map::is_apple_map as accepts;
use crate::{Event, Evidence, Input, Location, Note, Reading, Trace};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::numbers::prefixed_hexadecimal;

/// One trace: the functions of the sections of code.
///
/// # Errors
/// A map without a function.
pub(super) fn read(input: &Input<'_>) -> Result<Reading> {
    let mut map = Map::default();
    for (offset, line) in lines(input.bytes) {
        map.add(offset, line);
    }
    map.into_reading(input.bytes.len() as u64)
}

/// What the lines are about.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Table {
    #[default]
    Other,
    Sections,
    Symbols,
    Dead,
}

#[derive(Default)]
struct Map {
    table: Table,
    path: Vec<u8>,
    /// First address and the one past the last, of each section of code.
    code: Vec<(u64, u64)>,
    functions: FirstSeen,
    /// Symbols that are not code.
    others: u64,
    dead: u64,
    odd: Option<(u64, u64)>,
}

impl Map {
    fn add(&mut self, offset: u64, line: &[u8]) {
        if let Some(heading) = line.strip_prefix(b"# ") {
            self.table = match heading {
                b"Sections:" => Table::Sections,
                b"Symbols:" => Table::Symbols,
                b"Dead Stripped Symbols:" => Table::Dead,
                // Names of columns follow the name of their table.
                _ if heading.ends_with(b"Name") || heading.ends_with(b"Section") => self.table,
                _ => Table::Other,
            };
            if let Some(path) = heading.strip_prefix(b"Path: ") {
                self.path = path.to_vec();
            }
            return;
        }
        let is_known = match self.table {
            _ if line.is_empty() || line.starts_with(b"#") => true,
            Table::Other => true,
            Table::Sections => self.add_section(line).is_some(),
            Table::Symbols => self.add_symbol(line).is_some(),
            Table::Dead => {
                self.dead += 1;
                true
            }
        };
        if !is_known {
            self.odd = Some(self.odd.map_or((offset, 1), |(first, count)| (first, count + 1)));
        }
    }

    fn add_section(&mut self, line: &[u8]) -> Option<()> {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (start, size) = (prefixed_hexadecimal(words.next()?)?, prefixed_hexadecimal(words.next()?)?);
        let (segment, section) = (words.next()?, words.next()?);
        if segment == b"__TEXT" && section.starts_with(b"__text") {
            self.code.push((start, start.checked_add(size)?));
        }
        Some(())
    }

    fn add_symbol(&mut self, line: &[u8]) -> Option<()> {
        let (place, symbol) = split_once(line, b"[")?;
        let (_, name) = split_once(symbol, b"] ")?;
        let mut words = place.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let (address, size) = (prefixed_hexadecimal(words.next()?)?, prefixed_hexadecimal(words.next()?)?);
        if self.code.iter().any(|(start, end)| (start..end).contains(&&address)) {
            let location = Location::Image(Address(address));
            // Labels without a size lie at functions that have one.
            if size > 0 {
                self.functions.add(Event {
                    name: Some(name.into()),
                    size: Some(size),
                    ..Event::at(location)
                });
                return Some(());
            }
        }
        self.others += 1;
        Some(())
    }

    fn into_reading(self, length: u64) -> Result<Reading> {
        let events = self.functions.into_events();
        if events.is_empty() {
            return Err(Error::malformed(length, "a link map without functions in __TEXT,__text")
                .with_hint("write it again: ld -map FILE, in Xcode LD_GENERATE_MAP_FILE=YES"));
        }
        let mut notes = vec![
            Note::new("a link map lists functions as they were laid out, not as they ran")
                .with_hint("give the list of functions that ran instead, one symbol per line"),
        ];
        if let Some((offset, count)) = self.odd {
            notes.push(Note::at(
                offset,
                format!("{count} lines do not belong to a link map and were left out"),
            ));
        }
        if self.others + self.dead > 0 {
            notes.push(Note::new(format!(
                "{} symbols that are not code and {} that the linker left out of the image are not used",
                self.others, self.dead
            )));
        }
        let trace = Trace {
            image: image_at(&self.path),
            weight: 1,
            evidence: Evidence::Listed,
            events,
            ..Trace::default()
        };
        Ok(Reading { traces: vec![trace], notes })
    }
}

#[cfg(test)]
mod tests {
    use super::super::damage::{sample, survives};

    #[test]
    fn damage_is_told_or_survived() {
        survives("link map", &sample("lists/link-map.txt"));
    }
}
