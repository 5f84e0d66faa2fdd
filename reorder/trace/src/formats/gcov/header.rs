//! What `.gcda` and `.gcno` files start with: the kind in the byte order of the processor that wrote the file, the
//! compiler's version as four characters, and a stamp that both files of one object share.

use crate::cursor::{ByteOrder, Cursor};
use reorder_base::error::{Error, Result};

/// The beginning of both files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) version: Version,
    /// The same in both files of one compilation.
    pub(super) stamp: u32,
}

/// Which of the two files.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Counters, written by the program.
    Data,
    /// Names, written by the compiler.
    Notes,
}

impl Kind {
    /// In a big-endian file.
    fn word(self) -> [u8; 4] {
        match self {
            Self::Data => *b"gcda",
            Self::Notes => *b"gcno",
        }
    }
}

/// GCC's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) major: u32,
}

impl Version {
    /// `B22*` is 12.2: a letter for tens, a digit, the minor version, the kind of release. Before GCC 5 two
    /// digits follow the first one (`408*`).
    fn parse(characters: [u8; 4]) -> Option<Self> {
        let digit = |character: u8| char::from(character).to_digit(10);
        let major = match characters[0] {
            letter @ b'A'..=b'Z' => u32::from(letter - b'A') * 10 + digit(characters[1])?,
            other => digit(other)?,
        };
        characters.iter().all(u8::is_ascii_graphic).then_some(Self { major })
    }

    /// From GCC 12 on lengths are bytes, before they are words; and the header has a checksum.
    pub(super) fn counts_bytes(self) -> bool {
        self.major >= 12
    }
}

/// The byte order and version of a file of this kind. GCC's AutoFDO files start with the same four bytes, but a
/// number follows.
pub(super) fn recognise(bytes: &[u8], kind: Kind) -> Option<(ByteOrder, Version)> {
    let (first, second) = (bytes.first_chunk::<4>()?, bytes.get(4..)?.first_chunk::<4>()?);
    let (little, big) = (u32::from_le_bytes(*first).to_be_bytes(), *first);
    if big == kind.word() {
        Some((ByteOrder::Big, Version::parse(*second)?))
    } else if little == kind.word() {
        Some((ByteOrder::Little, Version::parse(u32::from_le_bytes(*second).to_be_bytes())?))
    } else {
        None
    }
}

/// The header of a file of this kind and a cursor after it.
pub(super) fn read(bytes: &[u8], kind: Kind) -> Result<(Header, Cursor<'_>)> {
    let (order, version) =
        recognise(bytes, kind).ok_or_else(|| Error::malformed(0, "not a file of GCC's instrumentation"))?;
    if version.major < 5 {
        return Err(Error::malformed(
            4,
            format!("a file of GCC {}; versions from 5 on are known", version.major),
        )
        .with_hint("build with a newer GCC"));
    }
    let mut cursor = Cursor::new(bytes, order);
    cursor.skip(8)?;
    let stamp = cursor.u32()?;
    if version.counts_bytes() {
        cursor.skip(4)?;
    }
    Ok((Header { version, stamp }, cursor))
}
