//! How small an image becomes in packages and compressed file systems.
//!
//! In: bytes. Out: sizes for each compressor, of the whole file and of blocks that are compressed separately. Deterministic
//! for one version of this program, which contains the compressors.

use std::io::Write as _;

use rayon::prelude::*;

use reorder_base::error::{Error, Result};

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

    /// Bytes after compression.
    ///
    /// # Errors
    /// When the compressor fails, which happens only for lack of memory.
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
                let stream = xz_stream(bytes.len()).map_err(|error| failed(error.to_string()))?;
                let mut encoder = liblzma::write::XzEncoder::new_stream(Counter(0), stream);
                encoder.write_all(bytes).map_err(|error| failed(error.to_string()))?;
                encoder.finish().map_err(|error| failed(error.to_string()))?.0
            }
            Self::Brotli => {
                let window = (bytes.len().max(1).ilog2() + 1).clamp(BROTLI_MIN_WINDOW, BROTLI_WINDOW);
                let mut encoder = brotli::CompressorWriter::new(Counter(0), BUFFER, BROTLI_QUALITY, window);
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
const BROTLI_MIN_WINDOW: u32 = 10;
const BUFFER: usize = 64 << 10;

/// Preset 6 with a dictionary no larger than the input, because it is cleared for each block.
fn xz_stream(length: usize) -> std::result::Result<liblzma::stream::Stream, liblzma::stream::Error> {
    use liblzma::stream::{Check, Filters, LzmaOptions, Stream};
    let mut options = LzmaOptions::new_preset(XZ_PRESET)?;
    if length < XZ_DICTIONARY {
        options.dict_size(length.max(XZ_MIN_DICTIONARY) as u32);
    }
    Stream::new_stream_encoder(Filters::new().lzma2(&options), Check::Crc32)
}

/// Of preset 6.
const XZ_DICTIONARY: usize = 8 << 20;
const XZ_MIN_DICTIONARY: usize = 4 << 10;

/// Counts the bytes that are written to it.
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

/// A compressor, and the size of the blocks that it is given one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// Which.
    pub compressor: Compressor,
    /// In KiB; `None` for the whole file at once.
    pub block_kib: Option<u32>,
}

/// A larger block is the whole file.
const MAX_BLOCK: u32 = 1 << 20;

impl Compression {
    /// The default: the whole file for packages, and blocks of the fast compressors for file systems
    /// (EROFS stores clusters of 4 KiB and more, f2fs of 16 KiB, squashfs of 128 KiB).
    #[must_use]
    pub(crate) fn default_set() -> Vec<Self> {
        let whole = Compressor::ALL.map(|compressor| Self { compressor, block_kib: None });
        let blocks = [Compressor::Gzip, Compressor::Zstd]
            .into_iter()
            .flat_map(|compressor| [4, 16, 64, 128].map(|block| Self { compressor, block_kib: Some(block) }));
        whole.into_iter().chain(blocks).collect()
    }

    /// As in `reorder.toml` and in keys of figures: `zstd`, `zstd.64k`.
    #[must_use]
    pub fn name(self) -> String {
        let compressor = self.compressor.name();
        self.block_kib.map_or_else(|| compressor.to_owned(), |block| format!("{compressor}.{block}k"))
    }

    /// The compression of this name.
    ///
    /// # Errors
    /// Unknown compressors, and blocks of no size.
    pub fn from_name(name: &str) -> Result<Self> {
        let (compressor, block) =
            name.split_once('.').map_or((name, None), |(one, other)| (one, Some(other)));
        let known = Compressor::ALL.into_iter().find(|known| known.name() == compressor);
        let block_kib = block.map(|block| {
            let size = block.strip_suffix('k').and_then(|size| size.parse::<u32>().ok());
            size.filter(|size| (1..=MAX_BLOCK).contains(size))
        });
        match (known, block_kib) {
            (Some(compressor), None) => Ok(Self { compressor, block_kib: None }),
            (Some(compressor), Some(Some(block))) => Ok(Self { compressor, block_kib: Some(block) }),
            _ => Err(Error::usage(format!("{name} is not a compression"))
                .with_hint("use gzip, zstd, xz or brotli, each also in blocks of N KiB: zstd.64k")),
        }
    }

    /// Bytes after compression.
    ///
    /// A block that compression would make larger is stored as it is, as file systems do it.
    ///
    /// # Errors
    /// When the compressor fails.
    pub fn size(self, bytes: &[u8]) -> Result<u64> {
        let Some(kibibytes) = self.block_kib else { return self.compressor.size(bytes) };
        let block = |part: &[u8]| Ok(self.compressor.size(part)?.min(part.len() as u64));
        let sizes: Vec<u64> =
            bytes.par_chunks(kibibytes as usize * 1024).map(block).collect::<Result<_>>()?;
        Ok(sizes.iter().sum())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    /// A mebibyte of real code and data.
    pub(crate) fn own_program() -> Vec<u8> {
        let mut bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        bytes.truncate(1 << 20);
        bytes
    }

    #[test]
    fn small_blocks_are_larger_together() {
        let program = own_program();
        for compressor in Compressor::ALL {
            let size = |block_kib| Compression { compressor, block_kib }.size(&program).unwrap();
            let (blocks, whole) = (size(Some(4)), size(None));
            assert!(whole > 0 && whole < blocks && blocks < program.len() as u64, "{compressor:?}");
            assert_eq!(blocks, size(Some(4)), "deterministic");
        }
    }

    #[test]
    fn what_does_not_shrink_is_stored() {
        let noise: Vec<u8> =
            (0..8192_u64).flat_map(|n| (n * n).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).collect();
        let gzip = Compression::from_name("gzip.1k").unwrap();
        assert!(gzip.size(&noise).unwrap() <= noise.len() as u64);
        assert_eq!(gzip.size(b"").unwrap(), 0);
    }

    #[test]
    fn names_lead_back() {
        for compression in Compression::default_set() {
            assert_eq!(Compression::from_name(&compression.name()).unwrap(), compression);
        }
        for name in ["lz5", "zstd.", "zstd.0k", "zstd.4", "zstd.9999999999k", ""] {
            assert!(Compression::from_name(name).unwrap_err().hint.is_some(), "{name}");
        }
    }

    /// Versions differ, so sizes do by some per cent; of code, that is: tables of relocations differ more.
    #[test]
    fn sizes_are_those_of_the_tools() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("bytes");
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let image = reorder_image::elf::file::ElfFile::parse(&program).unwrap();
        let code = image.section_bytes(image.section(b".text").unwrap());
        let bytes = code[..code.len().min(1 << 20)].to_vec();
        std::fs::write(&file, &bytes).unwrap();
        for (compressor, tool, arguments) in [
            (Compressor::Gzip, "gzip", &["-9", "-c"][..]),
            (Compressor::Zstd, "zstd", &["-19", "-c"]),
            (Compressor::Xz, "xz", &["-6", "-c", "-T1"]),
        ] {
            let output = std::process::Command::new(tool).args(arguments).arg(&file).output();
            let output = output.unwrap_or_else(|error| panic!("{tool}: {error}"));
            let (ours, theirs) = (compressor.size(&bytes).unwrap() as f64, output.stdout.len() as f64);
            assert!((ours / theirs - 1.0).abs() < 0.1, "{tool}: {ours} {theirs}");
        }
    }
}
