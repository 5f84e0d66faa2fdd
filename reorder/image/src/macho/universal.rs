//! Universal files: a table of images, one for each processor, and the images.
//!
//! Takes a Mach-O file, universal or not; gives its images as [`Slice`]s, and the file with some of them replaced.
//! Source: `mach-o/fat.h`. The table is big-endian; each image starts at a multiple of its alignment.

use std::ops::Range;

use object::LittleEndian;
use object::macho::{
    CPU_SUBTYPE_ARM64E, CPU_TYPE_ARM64, CPU_TYPE_X86_64, CpuSubtype, CpuType, FatArch32, FatArch64,
    FatHeader, MachHeader64,
};
use object::read::macho::{FatArch, MachHeader as _, MachOFatFile};

use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_base::refusal::{Refusal, RefusalCode};

/// Whether the file begins as Mach-O files do, of either width and order of bytes, or as universal ones.
#[must_use]
pub fn is_macho(bytes: &[u8]) -> bool {
    let magic = bytes.first_chunk::<4>().map(|magic| u32::from_be_bytes(*magic));
    // Java class files have the magic of universal files, and their version where the number of images is.
    let is_class = bytes.get(4..8).is_some_and(|count| u32::from_be_bytes([0, 0, count[2], count[3]]) > 30);
    match magic {
        Some(0xcafe_babe) => !is_class,
        Some(magic) => matches!(magic, 0xcafe_babf | 0xfeed_face | 0xfeed_facf | 0xcefa_edfe | 0xcffa_edfe),
        None => false,
    }
}

/// One image of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The processor as linkers name it (`arm64`, `arm64e`, `x86_64`); `None` for any other.
    pub architecture: Option<&'static str>,
    /// Where the image is in the file.
    pub range: Range<usize>,
    /// The logarithm of its alignment in the file.
    alignment: u32,
    /// Where the table has the offset, followed by the size; `None` for a file that is a single image.
    field: Option<Field>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Field {
    offset: usize,
    is_wide: bool,
}

/// The images of `bytes`, in the order of the table; the one image of a file that is not universal.
///
/// # Errors
/// Files that are not Mach-O, tables whose images overlap or lie outside the file.
pub fn slices(bytes: &[u8]) -> Result<Vec<Slice>> {
    let found = read_table(bytes)?;
    if let [Slice { field: None, .. }] = &found[..] {
        choose_among(&found, None)?;
        return Ok(found);
    }
    if found.is_empty() {
        return Err(Error::malformed(4, "the universal file has no images"));
    }
    let mut ranges: Vec<Range<usize>> = found.iter().map(|slice| slice.range.clone()).collect();
    ranges.sort_by_key(|range| range.start);
    let table_end = found.iter().filter_map(|slice| slice.field).map(|field| field.offset + 8).max();
    let is_inside = ranges.iter().all(|range| range.start <= range.end && range.end <= bytes.len());
    let is_apart = ranges.windows(2).all(|pair| pair[0].end <= pair[1].start)
        && ranges.first().is_none_or(|first| first.start >= table_end.unwrap_or(0));
    match is_inside && is_apart {
        true => Ok(found),
        false => Err(Error::malformed(8, "the images of the universal file overlap or lie outside it")),
    }
}

/// The one image for a processor that linkers name, or for `wanted`. Other images may overlap or lie outside the file.
/// Gives the processor's name and the image's place, which is inside the file.
///
/// # Errors
/// Files that are not Mach-O, and those of [`choose_among`].
pub(super) fn choose(bytes: &[u8], wanted: Option<&str>) -> Result<(&'static str, Range<usize>)> {
    let all = read_table(bytes)?;
    for slice in &all {
        if let (Some(name), Some(field)) = (slice.architecture, slice.field)
            && bytes.get(slice.range.clone()).is_none()
        {
            // The offset of the entry: the offset in it may lie anywhere.
            let place = field.offset as u64 - OFFSET_IN_ENTRY as u64;
            return Err(Error::malformed(
                place,
                format!("the image for {name}: Invalid fat arch offset or size"),
            ));
        }
    }
    choose_among(&all, wanted)
}

/// The one image of `all` for a processor that linkers name, or for `wanted`: the processor's name and the image's place.
///
/// # Errors
/// No such image, or several.
pub fn choose_among(all: &[Slice], wanted: Option<&str>) -> Result<(&'static str, Range<usize>)> {
    let named = || all.iter().filter_map(|slice| Some((slice.architecture?, &slice.range)));
    let names: Vec<&str> = named().map(|(name, _)| name).collect();
    let mut fitting = named().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
    match (fitting.next(), fitting.next()) {
        (Some((name, range)), None) => Ok((name, range.clone())),
        (Some(_), Some(_)) => Err(Error::usage(format!("the file has images for {}", names.join(", ")))
            .with_hint(Hint::ChooseArchitecture(None))),
        (None, _) if names.is_empty() => Err(Error::usage("the file has no image for arm64 or x86_64")
            .with_hint("give a program or library for one of these processors")),
        (None, _) => Err(Error::usage(format!(
            "the file has no image for {}, only for {}",
            wanted.unwrap_or_default(),
            names.join(", ")
        ))
        .with_hint(match names[..] {
            [_] => Hint::LeaveOutArchitecture,
            _ => Hint::ChooseArchitecture(Some(names[0].to_owned())),
        })),
    }
}

/// The table's entries as they are, or the whole of a file that is not universal. Images may overlap, lie outside the
/// file, and be for any processor.
fn read_table(bytes: &[u8]) -> Result<Vec<Slice>> {
    if let Ok(file) = MachOFatFile::<FatArch32>::parse(bytes) {
        return Ok(entries(file.arches(), false));
    }
    if let Ok(file) = MachOFatFile::<FatArch64>::parse(bytes) {
        return Ok(entries(file.arches(), true));
    }
    let header = MachHeader64::<LittleEndian>::parse(bytes, 0).map_err(|error| {
        Error::malformed(0, format!("this is not a 64-bit little-endian Mach-O file: {error}"))
            .with_hint("give a program or library for arm64 or x86_64")
    })?;
    let architecture = name_of(header.cputype(LittleEndian), header.cpusubtype(LittleEndian));
    Ok(vec![Slice { architecture, range: 0..bytes.len(), alignment: 0, field: None }])
}

/// Where an entry of the table, of either width, has the offset of its image.
const OFFSET_IN_ENTRY: usize = 8;

fn entries<Fat: FatArch>(all: &[Fat], is_wide: bool) -> Vec<Slice> {
    let slice = |(index, arch): (usize, &Fat)| {
        let (start, size): (u64, u64) = (arch.offset().into(), arch.size().into());
        // An end that no number holds is outside the file, too.
        let end = usize::try_from(start.saturating_add(size)).unwrap_or(usize::MAX);
        let entry = size_of::<FatHeader>() + index * size_of::<Fat>();
        Slice {
            architecture: name_of(arch.cputype(), arch.cpusubtype()),
            range: usize::try_from(start).unwrap_or(usize::MAX)..end,
            alignment: arch.align(),
            field: Some(Field { offset: entry + OFFSET_IN_ENTRY, is_wide }),
        }
    };
    all.iter().enumerate().map(slice).collect()
}

/// The processor as linkers name it.
pub(super) fn name_of(processor: CpuType, variant: CpuSubtype) -> Option<&'static str> {
    // The upper byte has flags.
    let variant = variant.0 & 0x00ff_ffff;
    match processor {
        CPU_TYPE_ARM64 if variant == CPU_SUBTYPE_ARM64E.0 & 0x00ff_ffff => Some("arm64e"),
        CPU_TYPE_ARM64 => Some("arm64"),
        CPU_TYPE_X86_64 => Some("x86_64"),
        _ => None,
    }
}

/// The file with some of its images replaced: `images` has the new bytes of each slice, or `None` for those that stay as
/// they are. Images keep their order and alignment; bytes between them and after them are kept.
///
/// # Errors
/// Refuses (M17) to overwrite or move bytes between the images other than padding. Images that together are too large for
/// the table's fields, impossible alignments.
pub fn replace(bytes: &[u8], slices: &[Slice], mut images: Vec<Option<Vec<u8>>>) -> Result<Vec<u8>> {
    if let ([Slice { field: None, .. }], [image @ Some(_)]) = (slices, &mut images[..]) {
        return Ok(std::mem::take(image).unwrap_or_default());
    }
    let mut order: Vec<usize> = (0..slices.len()).collect();
    order.sort_by_key(|&index| slices[index].range.start);
    let mut output = Vec::with_capacity(bytes.len());
    let (mut copied, mut has_moved) = (0, false);
    for index in order {
        let slice = &slices[index];
        let image = images.get(index).and_then(Option::as_deref).unwrap_or(&bytes[slice.range.clone()]);
        if slice.alignment > MAX_ALIGNMENT {
            return Err(Error::malformed(0, format!("an image is aligned to 2^{}", slice.alignment)));
        }
        // Until something grows, gaps are as they were.
        let start = match has_moved || output.len() > slice.range.start {
            true => output.len().next_multiple_of(1 << slice.alignment),
            false => slice.range.start,
        };
        has_moved |= start != slice.range.start || image.len() != slice.range.len();
        fill_gap(bytes, copied..slice.range.start, start, &mut output)?;
        output.extend_from_slice(image);
        copied = slice.range.end;
        if let Some(field) = slice.field {
            write_place(&mut output, field, start as u64, image.len() as u64)?;
        }
    }
    let end = if has_moved { output.len() + (bytes.len() - copied) } else { bytes.len() };
    fill_gap(bytes, copied..bytes.len(), end, &mut output)?;
    Ok(output)
}

/// Fills `output` up to `end`, where the next image or the file's end is, with the contents of the `old` gap. Padding may
/// become longer or shorter; other bytes keep their place.
fn fill_gap(bytes: &[u8], old: Range<usize>, end: usize, output: &mut Vec<u8>) -> Result<()> {
    let overwritten = old.start..output.len().clamp(old.start, old.end);
    let is_padding = |range: Range<usize>| bytes[range].iter().all(|byte| *byte == 0);
    if is_padding(old.clone()) {
        output.resize(end, 0);
        return Ok(());
    }
    if end != old.end || !is_padding(overwritten.clone()) {
        return Err(Refusal::new(
            RefusalCode::MachOTrailingBytes,
            format!(
                "the images of the universal file would need the bytes from {:#x} on, which are no padding",
                old.start
            ),
            "take the images out with lipo, relocate them and join them again",
        )
        .into());
    }
    if output.len() < overwritten.end {
        output.resize(overwritten.end, 0);
    }
    output.extend_from_slice(&bytes[overwritten.end..old.end]);
    Ok(())
}

/// Larger than the pages of any system, as a logarithm.
const MAX_ALIGNMENT: u32 = 20;

fn write_place(output: &mut [u8], field: Field, start: u64, size: u64) -> Result<()> {
    let numbers = match field.is_wide {
        true => [start.to_be_bytes(), size.to_be_bytes()].concat(),
        false => {
            let narrow = |number: u64| {
                u32::try_from(number).map(u32::to_be_bytes).map_err(|_| {
                    Error::usage("the universal file would be larger than 4 GiB")
                        .with_hint("relocate its images one by one")
                })
            };
            [narrow(start)?, narrow(size)?].concat()
        }
    };
    match output.get_mut(field.offset..field.offset + numbers.len()) {
        Some(place) => place.copy_from_slice(&numbers),
        None => return Err(Error::malformed(field.offset as u64, "the table of images is cut off")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A universal file with these images for arm64 and x86_64.
    fn universal(images: [&[u8]; 2]) -> Vec<u8> {
        let second = 0x4000 + images[0].len().next_multiple_of(0x4000);
        let mut table = vec![0xcafe_babe_u32, 2];
        table.extend([0x0100_000c, 0, 0x4000, images[0].len() as u32, 14]);
        table.extend([0x0100_0007, 3, second as u32, images[1].len() as u32, 14]);
        let mut bytes: Vec<u8> = table.into_iter().flat_map(u32::to_be_bytes).collect();
        bytes.resize(0x4000, 0);
        bytes.extend_from_slice(images[0]);
        bytes.resize(second, 0);
        bytes.extend_from_slice(images[1]);
        bytes
    }

    proptest! {
        #[test]
        fn a_replaced_image_leaves_the_other(first in 1_usize..40_000, second in 1_usize..100, new in 1_usize..60_000) {
            let file = universal([&vec![1; first], &vec![2; second]]);
            let found = slices(&file).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(found[0].architecture, Some("arm64"));
            prop_assert_eq!(replace(&file, &found, vec![None, None]).ok(), Some(file.clone()));
            let replaced = replace(&file, &found, vec![Some(vec![3; new]), None])
                .map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(replaced, universal([&vec![3; new], &vec![2; second]]));
        }

        /// Bytes in the gap and at the end keep their place, or the replacement fails.
        #[test]
        fn what_lies_between_images_is_kept(new in 1_usize..0x4800, at in 0x4040_usize..0x8000) {
            let mut file = universal([&[1; 64], &[2; 64]]);
            file[at] = 9;
            file.extend([7; 5]);
            let found = slices(&file).map_err(|error| TestCaseError::fail(error.to_string()))?;
            prop_assert_eq!(replace(&file, &found, vec![None, None]).ok(), Some(file.clone()));
            let replaced = replace(&file, &found, vec![Some(vec![3; new]), None]);
            prop_assert_eq!(replaced.is_ok(), 0x4000 + new <= at);
            let is_kept = |bytes: Vec<u8>| bytes.len() == file.len() && bytes[at] == 9 && bytes.ends_with(&[7; 5]);
            prop_assert!(replaced.map_or(true, is_kept));
            let grown = vec![3; 0x4001];
            prop_assert!(replace(&file, &found, vec![None, Some(grown)]).is_err());
        }

        #[test]
        fn damaged_tables_are_errors_or_survived(edits in prop::collection::vec((0_usize..48, any::<u8>()), 1..6)) {
            let mut file = universal([&[1; 64], &[2; 64]]);
            for (at, byte) in edits {
                file[at] = byte;
            }
            if let Ok(found) = slices(&file) {
                let images = vec![None; found.len()];
                if let Ok(replaced) = replace(&file, &found, images) {
                    prop_assert!(replaced.len() <= file.len() + (found.len() << MAX_ALIGNMENT));
                }
            }
        }
    }
}
