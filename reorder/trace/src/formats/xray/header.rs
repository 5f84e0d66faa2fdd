//! The header of every log, 32 bytes (`XRayFileHeader` in `xray/xray_records.h`).
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 2 | version |
//! | 2 | 2 | 0 basic, 1 FDR |
//! | 4 | 4 | flags, mostly not initialised |
//! | 8 | 8 | cycles of the clock per second |
//! | 16 | 16 | FDR: size of a buffer; otherwise not initialised |

use crate::cursor::{ByteOrder, Cursor};

/// Size of a header in bytes.
pub(super) const LENGTH: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Basic,
    FlightRecorder,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) mode: Mode,
    pub(super) version: u16,
    pub(super) order: ByteOrder,
    /// Ticks per second; 0 when the writer did not know.
    pub(super) frequency: u64,
    pub(super) buffer_size: u64,
}

impl Header {
    /// Whether the stated frequency is possible for a processor's clock.
    pub(super) fn has_frequency(&self) -> bool {
        (SLOWEST..FASTEST).contains(&self.frequency)
    }

    /// `None` if this cannot be a header of a known version.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..LENGTH)?;
        [ByteOrder::Little, ByteOrder::Big].into_iter().find_map(|order| {
            let mut cursor = Cursor::new(header, order);
            let (version, kind) = (cursor.u16().ok()?, cursor.u16().ok()?);
            let mode = match (kind, version) {
                (0, 1..=3) => Mode::Basic,
                (1, 1..=5) => Mode::FlightRecorder,
                _ => return None,
            };
            cursor.skip(4).ok()?;
            let (frequency, buffer_size) = (cursor.u64().ok()?, cursor.u64().ok()?);
            (frequency < FASTEST).then_some(Self { mode, version, order, frequency, buffer_size })
        })
    }
}

const SLOWEST: u64 = 1_000_000;
/// In hertz. No clock runs at a million megahertz; random bytes mostly state more.
const FASTEST: u64 = 1_000_000_000_000;
