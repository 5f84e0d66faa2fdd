//! What a layout may pay for a smaller compressed file.

use std::fmt;
use std::str::FromStr;

use layout_algos::solve::{CompressedOrder, TailOrder};
use serde::{Serialize, Serializer};

/// The request for a layout that compresses well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compression {
    /// How much more new startups may cost.
    pub budget: Budget,
    /// What compresses the file.
    pub compressor: Compressor,
}

/// A growth of the cost of new startups, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Budget {
    /// Thousandths: 20 is two per cent.
    pub permille: u32,
}

/// The most that a budget can be: ten times the cost.
const MAX_PERCENT: f64 = 900.0;

/// The budgets whose effects are told; the last one allows any number of pages.
const TOLD_PERMILLE: [u32; 7] = [5, 10, 20, 50, 100, 200, 9000];

impl Default for Budget {
    fn default() -> Self {
        Self { permille: 20 }
    }
}

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.strip_suffix('%').unwrap_or(text).trim_end();
        match digits.parse::<f64>() {
            Ok(percent) if (0.0..=MAX_PERCENT).contains(&percent) => {
                Ok(Self { permille: (percent * 10.0).round() as u32 })
            }
            _ => Err(format!("a budget is a number of per cent from 0 to {MAX_PERCENT}, such as 2 or 2.5")),
        }
    }
}

impl Budget {
    /// This budget and others to compare it with, the smallest first.
    pub(super) fn with_others(self) -> Vec<u32> {
        let mut budgets = TOLD_PERMILLE.to_vec();
        budgets.push(self.permille);
        budgets.sort_unstable();
        budgets.dedup();
        budgets
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.permille / 10, self.permille % 10) {
            (whole, 0) => write!(formatter, "{whole}%"),
            (whole, tenth) => write!(formatter, "{whole}.{tenth}%"),
        }
    }
}

impl Serialize for Budget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What compresses the file: how far back it looks for what it has seen before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compressor {
    /// zip, gzip, PNG-like streams: 32 KiB.
    #[default]
    Deflate,
    /// zstd at the levels that packages are made with.
    Zstd,
    /// xz.
    Xz,
    /// Blocks of this many bytes that are compressed one by one: squashfs, EROFS.
    Blocks(u64),
}

/// The smallest and largest block that file systems compress.
const BLOCKS: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 20;

impl Compressor {
    /// Bytes within which what is repeated costs little. zstd and xz look farther, but what is far costs them more.
    #[must_use]
    pub fn reach(self) -> u64 {
        match self {
            Self::Deflate => 32 << 10,
            Self::Zstd => 256 << 10,
            Self::Xz => 1 << 20,
            Self::Blocks(bytes) => bytes,
        }
    }
}

impl FromStr for Compressor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let blocks = |size: &str| {
            let (digits, shift) = match size.as_bytes().last() {
                Some(b'k' | b'K') => (&size[..size.len() - 1], 10),
                Some(b'm' | b'M') => (&size[..size.len() - 1], 20),
                _ => (size, 0),
            };
            let bytes = digits.parse::<u32>().ok().map(|number| u64::from(number) << shift);
            bytes.filter(|bytes| BLOCKS.contains(bytes) && bytes.is_power_of_two())
        };
        match (text, text.strip_prefix("blocks:")) {
            ("deflate", _) => Ok(Self::Deflate),
            ("zstd", _) => Ok(Self::Zstd),
            ("xz", _) => Ok(Self::Xz),
            (_, Some(size)) => blocks(size)
                .map(Self::Blocks)
                .ok_or_else(|| "a block has 4K to 1M bytes, a power of two: blocks:128K".to_owned()),
            (_, None) => Err("deflate, zstd, xz or blocks:SIZE, such as blocks:128K".to_owned()),
        }
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Deflate => formatter.write_str("deflate"),
            Self::Zstd => formatter.write_str("zstd"),
            Self::Xz => formatter.write_str("xz"),
            Self::Blocks(bytes) => write!(formatter, "blocks:{}K", bytes >> 10),
        }
    }
}

impl Serialize for Compressor {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a budget buys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Trade {
    /// How the functions that no trace ran are ordered.
    pub tail_order: &'static str,
    /// The least compressed bytes that a function which leaves the order by pages has in common with one at its new place; only for
    /// `content`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_shared_bytes: Option<u32>,
    /// Estimated growth of the cost of new startups, in thousandths.
    pub more_permille: u64,
    /// Estimated change of the compressed file in bytes; negative is smaller.
    pub compressed_bytes: i64,
}

impl From<layout_algos::solve::TradeOff> for Trade {
    fn from(trade: layout_algos::solve::TradeOff) -> Self {
        let (tail_order, min_shared_bytes) = match trade.tail_order {
            TailOrder::Pages => ("pages", None),
            TailOrder::Content(bytes) => ("content", Some(bytes)),
            TailOrder::Partitioned => ("content-alone", None),
            TailOrder::Link => ("link", None),
        };
        Self {
            tail_order,
            min_shared_bytes,
            more_permille: trade.growth_permille,
            compressed_bytes: trade.compressed_bytes,
        }
    }
}

/// What was chosen for compression, and what else could be had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Trades {
    /// What was chosen.
    pub chosen: Trade,
    /// What the chosen budget and others give, the smallest first.
    pub curve: Vec<CurvePoint>,
}

/// A budget and what it buys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CurvePoint {
    /// The most that new startups may cost more.
    pub budget: Budget,
    /// What it buys.
    #[serde(flatten)]
    pub trade: Trade,
}

impl From<CompressedOrder> for Trades {
    fn from(compressed: CompressedOrder) -> Self {
        let point = |(permille, trade)| CurvePoint { budget: Budget { permille }, trade: Trade::from(trade) };
        Self { chosen: compressed.chosen.into(), curve: compressed.curve.into_iter().map(point).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_per_cent() {
        let permille = |text: &str| text.parse::<Budget>().map(|budget| budget.permille);
        assert_eq!([permille("2"), permille("2.5%"), permille("0")], [Ok(20), Ok(25), Ok(0)]);
        assert!(["", "-1", "x", "nan", "1e9", "%"].iter().all(|text| permille(text).is_err()));
        assert_eq!(Budget { permille: 25 }.to_string(), "2.5%");
    }

    #[test]
    fn the_chosen_budget_is_among_those_told() {
        assert_eq!(Budget::default().with_others(), TOLD_PERMILLE);
        assert_eq!(Budget { permille: 25 }.with_others(), [5, 10, 20, 25, 50, 100, 200, 9000]);
    }

    #[test]
    fn compressors_are_read_as_they_are_written() {
        for text in ["deflate", "zstd", "xz", "blocks:4K", "blocks:128K", "blocks:1024K"] {
            assert_eq!(text.parse::<Compressor>().unwrap().to_string(), text);
        }
        assert_eq!("blocks:65536".parse(), Ok(Compressor::Blocks(65_536)));
        for text in ["", "lzma", "blocks:", "blocks:3K", "blocks:2M", "blocks:1", "blocks:\u{e9}"] {
            assert!(text.parse::<Compressor>().is_err(), "{text}");
        }
    }
}
