//! How numbers and records are stored: byte order and pointer width by the magic, fields by the version.

use crate::cursor::ByteOrder;

/// Raw profile versions that are read: LLVM 14 to 17, 18, and from 19 on.
pub(crate) const VERSIONS: std::ops::RangeInclusive<u32> = 8..=10;

/// Byte order and pointer width of the processor that wrote a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub(crate) order: ByteOrder,
    /// 4 or 8.
    pub(crate) pointer_bytes: u8,
}

impl Encoding {
    /// By the first eight bytes: 0xff, `lprof`, `r` for 64-bit or `R` for 32-bit, 0x81, as one number.
    pub(super) fn of_magic(bytes: &[u8]) -> Option<Self> {
        let (order, pointer) = match bytes.get(..8)? {
            [0x81, pointer, b'f', b'o', b'r', b'p', b'l', 0xff] => (ByteOrder::Little, pointer),
            [0xff, b'l', b'p', b'r', b'o', b'f', pointer, 0x81] => (ByteOrder::Big, pointer),
            _ => return None,
        };
        let pointer_bytes = match pointer {
            b'r' => 8,
            b'R' => 4,
            _ => return None,
        };
        Some(Self { order, pointer_bytes })
    }

    /// The number at `at`; zero beyond the end, which fixed record sizes exclude.
    pub(super) fn u64_at(self, bytes: &[u8], at: usize) -> u64 {
        let bytes = array_at(bytes, at);
        match self.order {
            ByteOrder::Little => u64::from_le_bytes(bytes),
            ByteOrder::Big => u64::from_be_bytes(bytes),
        }
    }

    fn u32_at(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = array_at(bytes, at);
        match self.order {
            ByteOrder::Little => u32::from_le_bytes(bytes),
            ByteOrder::Big => u32::from_be_bytes(bytes),
        }
    }

    fn pointer_at(self, bytes: &[u8], at: usize) -> u64 {
        if self.pointer_bytes == 8 { self.u64_at(bytes, at) } else { u64::from(self.u32_at(bytes, at)) }
    }

    /// `number` as an address of the processor: what is beyond its pointers falls off.
    pub(super) fn address(self, number: u64) -> u64 {
        if self.pointer_bytes == 8 { number } else { number & u64::from(u32::MAX) }
    }

    /// `number` as a signed distance of the processor, if it is not negative.
    fn distance(self, number: u64) -> Option<u64> {
        let half = 1 << (u32::from(self.pointer_bytes) * 8 - 1);
        Some(self.address(number)).filter(|distance| *distance < half)
    }
}

fn array_at<const LENGTH: usize>(bytes: &[u8], at: usize) -> [u8; LENGTH] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; LENGTH])
}

/// Where the fields of a function's record lie (`INSTR_PROF_DATA` in `InstrProfData.inc`).
///
/// ```text
/// name hash u64, structural hash u64, counters ptr, [bitmap ptr], function ptr, values ptr,
/// counters u32, value sites u16 for each kind, [bitmap bytes u32], to a multiple of 8
/// ```
#[derive(Clone, Debug)]
pub(crate) struct RecordLayout {
    encoding: Encoding,
    function: usize,
    counter_count: usize,
    value_sites: std::ops::Range<usize>,
    /// Bytes of one record.
    pub(crate) size: usize,
}

/// What a function's record says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) name_hash: u64,
    /// In profiles relative to the record, in images an address.
    pub(crate) counters: u64,
    /// Address of the function; 0 for most whose address is not taken.
    pub(crate) function: u64,
    pub(crate) counter_count: u32,
}

impl RecordLayout {
    const COUNTERS: usize = 16;

    pub(crate) fn new(encoding: Encoding, version: u32) -> Self {
        let pointer = usize::from(encoding.pointer_bytes);
        let has_bitmap = version >= 9;
        let value_kinds = if version >= 10 { 3 } else { 2 };
        let function = Self::COUNTERS + pointer * if has_bitmap { 2 } else { 1 };
        let counter_count = function + 2 * pointer;
        let value_sites = counter_count + 4..counter_count + 4 + 2 * value_kinds;
        let bitmap_bytes = if has_bitmap { value_sites.end.next_multiple_of(4) + 4 } else { value_sites.end };
        Self { encoding, function, counter_count, value_sites, size: bitmap_bytes.next_multiple_of(8) }
    }

    /// The fields of a record of `size` bytes.
    pub(crate) fn read(&self, record: &[u8]) -> Record {
        Record {
            name_hash: self.name_hash(record),
            counters: self.encoding.pointer_at(record, Self::COUNTERS),
            function: self.encoding.pointer_at(record, self.function),
            counter_count: self.encoding.u32_at(record, self.counter_count),
        }
    }

    pub(super) fn name_hash(&self, record: &[u8]) -> u64 {
        self.encoding.u64_at(record, 0)
    }

    /// Whether the profile has values for this record after the names.
    pub(super) fn has_values(&self, record: &[u8]) -> bool {
        record.get(self.value_sites.clone()).is_some_and(|sites| sites.iter().any(|&byte| byte != 0))
    }

    /// Where in the counters those of record `number` start. The pointer is the distance from the record, so the
    /// distance between both sections shrinks from record to record; all of it wraps as the processor's pointers do.
    pub(super) fn counter_offset(&self, record: &Record, number: usize, counters_delta: u64) -> Option<u64> {
        let delta = counters_delta.wrapping_sub((number as u64).wrapping_mul(self.size as u64));
        self.encoding.distance(record.counters.wrapping_sub(delta))
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteOrder, Encoding, RecordLayout};

    #[test]
    fn records_have_the_sizes_of_every_version() {
        let sizes = |pointer_bytes| {
            let encoding = Encoding { order: ByteOrder::Little, pointer_bytes };
            [8, 9, 10].map(|version| RecordLayout::new(encoding, version).size)
        };
        assert_eq!(sizes(8), [48, 64, 64]);
        assert_eq!(sizes(4), [40, 48, 48]);
    }

    #[test]
    fn distances_are_those_of_the_machine() {
        let narrow = Encoding { order: ByteOrder::Big, pointer_bytes: 4 };
        let wide = Encoding { order: ByteOrder::Big, pointer_bytes: 8 };
        assert_eq!(narrow.distance(0x1_0000_0010), Some(0x10));
        assert_eq!(narrow.distance(0xffff_fff8), None);
        assert_eq!(wide.distance(0xffff_fff8), Some(0xffff_fff8));
        assert_eq!(wide.distance(u64::MAX), None);
    }
}
