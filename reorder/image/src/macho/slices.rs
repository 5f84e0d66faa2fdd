//! The images of a universal file, one for each processor.
//!
//! In: a Mach-O file, universal or not, and perhaps the name of a processor. Out: the bytes of one image.

use object::macho::{
    CPU_SUBTYPE_ARM64E, CPU_TYPE_ARM64, CPU_TYPE_X86_64, FatArch32, FatArch64, FatHeader, MachHeader64,
};
use object::read::macho::{FatArch, MachHeader as _, MachOFatFile};
use object::{LittleEndian, macho};

use reorder_base::error::{Error, Result};

/// Whether the file begins as Mach-O files do, of either width and order of bytes, or as universal ones.
#[must_use]
pub fn is_macho(bytes: &[u8]) -> bool {
    let magic = bytes.first_chunk::<4>().map(|magic| u32::from_be_bytes(*magic));
    // A Java class has the magic of universal files; its version would be their number of images.
    let is_class = bytes.get(4..8).is_some_and(|count| u32::from_be_bytes([0, 0, count[2], count[3]]) > 30);
    match magic {
        Some(0xcafe_babe) => !is_class,
        Some(magic) => matches!(magic, 0xcafe_babf | 0xfeed_face | 0xfeed_facf | 0xcefa_edfe | 0xcffa_edfe),
        None => false,
    }
}

/// Name of the processor as linkers have it, and the bytes of its image.
///
/// # Errors
/// Files without an image for arm64 or x86-64, for the wanted processor, or with several and none wanted.
pub(super) fn choose<'data>(bytes: &'data [u8], wanted: Option<&str>) -> Result<(&'static str, &'data [u8])> {
    let all = images(bytes)?;
    let mut fitting = all.iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
    let (first, second) = (fitting.next(), fitting.next());
    let names = all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    match (first, second) {
        (Some(image), None) => Ok(*image),
        (Some(_), Some(_)) => Err(Error::usage(format!("the file has images for {names}"))
            .with_hint("choose one of them with --arch NAME")),
        (None, _) if all.is_empty() => Err(Error::usage("the file has no image for arm64 or x86_64")
            .with_hint("give a program or library for one of these processors")),
        (None, _) => Err(Error::usage(format!(
            "the file has no image for {}, only for {names}",
            wanted.unwrap_or_default()
        ))
        .with_hint(match all.len() {
            1 => "leave out --arch".to_owned(),
            _ => format!("choose one of them: --arch {}", all[0].0),
        })),
    }
}

fn images(bytes: &[u8]) -> Result<Vec<(&'static str, &[u8])>> {
    if let Ok(file) = MachOFatFile::<FatArch32>::parse(bytes) {
        return slices(bytes, file.arches());
    }
    if let Ok(file) = MachOFatFile::<FatArch64>::parse(bytes) {
        return slices(bytes, file.arches());
    }
    let header = MachHeader64::<LittleEndian>::parse(bytes, 0).map_err(|error| {
        Error::malformed(0, format!("this is not a 64-bit little-endian Mach-O file: {error}"))
            .with_hint("give a program or library for arm64 or x86_64")
    })?;
    let name = name_of(header.cputype(LittleEndian), header.cpusubtype(LittleEndian));
    Ok(name.map(|name| (name, bytes)).into_iter().collect())
}

fn slices<'data, Fat: FatArch>(bytes: &'data [u8], all: &[Fat]) -> Result<Vec<(&'static str, &'data [u8])>> {
    let mut images = Vec::new();
    for (index, slice) in all.iter().enumerate() {
        if let Some(name) = name_of(slice.cputype(), slice.cpusubtype()) {
            // The entry, for what it says may lie anywhere.
            let place = size_of::<FatHeader>() + index * size_of::<Fat>();
            let image = slice
                .data(bytes)
                .map_err(|error| Error::malformed(place as u64, format!("the image for {name}: {error}")))?;
            images.push((name, image));
        }
    }
    Ok(images)
}

pub(super) fn name_of(processor: macho::CpuType, variant: macho::CpuSubtype) -> Option<&'static str> {
    // The upper byte has flags.
    let variant = variant.0 & 0x00ff_ffff;
    match processor {
        CPU_TYPE_ARM64 if variant == CPU_SUBTYPE_ARM64E.0 & 0x00ff_ffff => Some("arm64e"),
        CPU_TYPE_ARM64 => Some("arm64"),
        CPU_TYPE_X86_64 => Some("x86_64"),
        _ => None,
    }
}
