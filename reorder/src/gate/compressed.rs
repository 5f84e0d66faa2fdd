//! How small an image becomes in packages and compressed file systems.
//!
//! In: bytes. Out: sizes for each compressor, of the whole and of blocks that are compressed each by itself. Deterministic
//! for one version of this program: the compressors are part of it.

use std::io::Write as _;

use rayon::prelude::*;

use crate::error::{Error, Result};

/// A compressor at the setting that release builds use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Compressor {
    /// Deflate, level 9, with gzip's header: packages, APK, squashfs.
    Gzip,
    /// Level 19: packages, squashfs, EROFS.
    Zstd,
    /// LZMA2, preset 6: packages, squashfs; EROFS stores LZMA.
    Xz,
    /// Quality 9, a window of 4 MiB: app stores, the web.
    Brotli,
}

impl Compressor {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Gzip, Self::Zstd, Self::Xz, Self::Brotli];

    /// As in `reorder.toml`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Xz => "xz",
            Self::Brotli => "brotli",
        }
    }

    /// The compressor of this name.
    ///
    /// # Errors
    /// Unknown names, with those that there are.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
            Error::usage(format!("no compressor is called {name}"))
                .with_hint("there are gzip, zstd, xz and brotli")
        })
    }

    /// Bytes after compression.
    ///
    /// # Errors
    /// When the compressor fails, which only memory can make it do.
    pub fn size(self, bytes: &[u8]) -> Result<u64> {
        let failed = |cause: String| Error::usage(format!("{} failed: {cause}", self.name()));
        let length = match self {
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Counter(0), flate2::Compression::best());
                encoder.write_all(bytes).map_err(|error| failed(error.to_string()))?;
                encoder.finish().map_err(|error| failed(error.to_string()))?.0
            }
            Self::Zstd => {
                let mut compressed = vec![0; zstd_safe::compress_bound(bytes.len())];
                zstd_safe::compress(&mut compressed[..], bytes, ZSTD_LEVEL)
                    .map_err(|code| failed(zstd_safe::get_error_name(code).to_owned()))?
                    as u64
            }
            Self::Xz => {
                let mut encoder = liblzma::write::XzEncoder::new(Counter(0), XZ_PRESET);
                encoder.write_all(bytes).map_err(|error| failed(error.to_string()))?;
                encoder.finish().map_err(|error| failed(error.to_string()))?.0
            }
            Self::Brotli => {
                let mut encoder =
                    brotli::CompressorWriter::new(Counter(0), BUFFER, BROTLI_QUALITY, BROTLI_WINDOW);
                encoder.write_all(bytes).map_err(|error| failed(error.to_string()))?;
                encoder.into_inner().0
            }
        };
        Ok(length)
    }
}

const ZSTD_LEVEL: i32 = 19;
const XZ_PRESET: u32 = 6;
const BROTLI_QUALITY: u32 = 9;
/// Logarithm of the window's size.
const BROTLI_WINDOW: u32 = 22;
const BUFFER: usize = 64 << 10;

/// Counts what is written to it.
struct Counter(u64);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What shall be compressed and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressionRequest {
    /// Each gives a figure for the whole and one for each block size.
    pub compressors: Vec<Compressor>,
    /// In KiB.
    pub block_kib: Vec<u32>,
}

/// EROFS stores clusters of 4 KiB and more, f2fs 16 KiB, squashfs 128 KiB by default.
const USUAL_BLOCKS: [u32; 4] = [4, 16, 64, 128];
/// Beyond, a block is the whole file.
const LARGEST_BLOCK: u32 = 1 << 20;

impl Default for CompressionRequest {
    fn default() -> Self {
        Self { compressors: Compressor::ALL.to_vec(), block_kib: USUAL_BLOCKS.to_vec() }
    }
}

impl CompressionRequest {
    /// From names and sizes as configured.
    ///
    /// # Errors
    /// Unknown compressors, and blocks of no size.
    pub fn of(compressors: Option<&[String]>, block_kib: Option<&[u32]>) -> Result<Self> {
        let mut request = Self::default();
        if let Some(names) = compressors {
            request.compressors =
                names.iter().map(|name| Compressor::from_name(name)).collect::<Result<_>>()?;
        }
        if let Some(blocks) = block_kib {
            if blocks.iter().any(|&size| size == 0 || size > LARGEST_BLOCK) {
                return Err(Error::usage("a block has at least 1 KiB and at most 1 GiB")
                    .with_hint("write block-kib = [4, 64]"));
            }
            request.block_kib = blocks.to_vec();
        }
        Ok(request)
    }

    /// Name and size of everything asked for: `zstd`, `zstd.64k`.
    ///
    /// A block that compression would make larger is stored as it is, as file systems do it.
    ///
    /// # Errors
    /// When a compressor fails.
    pub fn sizes(&self, bytes: &[u8]) -> Result<Vec<(String, u64)>> {
        let tasks: Vec<(Compressor, Option<u32>)> = self
            .compressors
            .iter()
            .flat_map(|&compressor| {
                let blocks = self.block_kib.iter().map(move |&size| (compressor, Some(size)));
                std::iter::once((compressor, None)).chain(blocks)
            })
            .collect();
        let size_of = |&(compressor, block): &(Compressor, Option<u32>)| match block {
            None => Ok((compressor.name().to_owned(), compressor.size(bytes)?)),
            Some(kibibytes) => {
                let block = |part: &[u8]| Ok(compressor.size(part)?.min(part.len() as u64));
                let sizes: Vec<u64> =
                    bytes.par_chunks(kibibytes as usize * 1024).map(block).collect::<Result<_>>()?;
                Ok((format!("{}.{kibibytes}k", compressor.name()), sizes.iter().sum()))
            }
        };
        tasks.par_iter().map(size_of).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn smaller_blocks_are_larger_together() {
        let text: Vec<u8> =
            (0..40_000_u32).flat_map(|n| ((n / 7) * 2_654_435_761 % 509).to_le_bytes()).collect();
        let sizes = CompressionRequest::default().sizes(&text).unwrap();
        assert_eq!(sizes.len(), 4 * 5);
        for of_one in sizes.chunks(5) {
            let [whole, blocks @ ..] = of_one else { panic!("five sizes") };
            assert!(whole.1 > 0 && whole.1 < text.len() as u64, "{whole:?}");
            assert!(blocks.is_sorted_by_key(|(_, size)| std::cmp::Reverse(*size)), "{blocks:?}");
        }
        assert_eq!(sizes, CompressionRequest::default().sizes(&text).unwrap(), "deterministic");
    }

    #[test]
    fn what_does_not_shrink_is_stored() {
        let noise: Vec<u8> =
            (0..8192_u64).flat_map(|n| (n * n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).collect();
        let request = CompressionRequest { compressors: vec![Compressor::Gzip], block_kib: vec![1] };
        assert!(request.sizes(&noise).unwrap()[1].1 <= noise.len() as u64);
        assert_eq!(request.sizes(b"").unwrap()[1].1, 0);
    }

    #[test]
    fn sizes_are_those_of_the_tools() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bytes");
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let bytes = &bytes[..bytes.len().min(1 << 20)];
        std::fs::write(&file, bytes).unwrap();
        for (compressor, tool, arguments) in
            [(Compressor::Zstd, "zstd", &["-19", "-c"][..]), (Compressor::Xz, "xz", &["-6", "-c", "-T1"])]
        {
            let output = std::process::Command::new(tool).args(arguments).arg(&file).output().unwrap();
            let (ours, theirs) = (compressor.size(bytes).unwrap() as f64, output.stdout.len() as f64);
            assert!((ours / theirs - 1.0).abs() < 0.01, "{tool}: {ours} {theirs}");
        }
    }
}
