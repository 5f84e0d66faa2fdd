//! What is mapped where in a process, and what a place in it is.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use object::elf::{
    SHT_DYNSYM, SHT_GNU_HASH, SHT_GNU_VERDEF, SHT_GNU_VERNEED, SHT_GNU_VERSYM, SHT_HASH, SHT_REL, SHT_RELA,
    SHT_RELR, SHT_STRTAB, SectionType,
};

use super::FaultKind;
use crate::measure::tracee::parse_line;
use reorder_base::address::RuntimeAddress;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::section::Section;
use reorder_system::mapped::map_image;

/// A range of addresses with one meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Region {
    pub(super) range: Range<RuntimeAddress>,
    pub(super) content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Of a file, from this place in it on.
    File { path: PathBuf, offset: u64, is_writable: bool },
    /// Memory without a file: the heap, stacks, and what the program allocates.
    Anonymous,
    /// Of the kernel, such as `[vdso]`.
    Kernel,
}

/// What is mapped in a process, by address; `None` when it cannot be inspected.
pub(super) fn regions(pid: Pid) -> Option<Vec<Region>> {
    let listing = fs::read(format!("/proc/{pid}/maps")).ok()?;
    Some(parse(&String::from_utf8_lossy(&listing)))
}

/// Regions in the form that proc(5) gives for `maps`.
///
/// The loader maps the part of a file's writable data that begins as zeros right after the part that is in the file.
fn parse(listing: &str) -> Vec<Region> {
    let mut regions: Vec<Region> = Vec::new();
    for (mapping, name) in listing.lines().filter_map(parse_line) {
        let range = RuntimeAddress(mapping.start)..RuntimeAddress(mapping.end);
        let (offset, is_writable) = (mapping.offset, mapping.is_writable);
        let content = match name {
            "" => match regions.last() {
                Some(Region {
                    range: before,
                    content: content @ Content::File { is_writable: true, .. },
                }) if before.end == range.start => content.clone(),
                _ => Content::Anonymous,
            },
            path if path.starts_with('/') => Content::File { path: PathBuf::from(path), offset, is_writable },
            "[vdso]" | "[vvar]" | "[vvar_vclock]" | "[vsyscall]" => Content::Kernel,
            _ => Content::Anonymous,
        };
        regions.push(Region { range, content });
    }
    regions
}

/// Ranges of a file, and what is there.
type Parts = Vec<(Range<u64>, FaultKind)>;

/// What the parts of files are; none of a file that is no ELF image. Each file is read once.
#[derive(Debug, Default)]
pub(super) struct Files {
    parts: BTreeMap<PathBuf, Option<Parts>>,
}

impl Files {
    /// What is at `offset` of the file at `path`.
    pub(super) fn kind_at(&mut self, path: &Path, offset: u64, is_writable: bool) -> FaultKind {
        let parts = self.parts.entry(path.to_path_buf()).or_insert_with(|| parts_of(path));
        let Some(parts) = parts else { return FaultKind::OtherFiles };
        if is_writable {
            return FaultKind::WrittenData;
        }
        let part = parts.iter().find(|(range, _)| range.contains(&offset));
        // Headers, and bytes between sections.
        part.map_or(FaultKind::ReadOnlyData, |(_, kind)| *kind)
    }
}

/// The loaded sections of the ELF file at `path`; `None` for any other file.
fn parts_of(path: &Path) -> Option<Parts> {
    // Devices, which never end, are refused; of a large file that is no image only the first bytes are read.
    let bytes = map_image(path).ok()?;
    let file = ElfFile::parse(&bytes).ok()?;
    let loaded = file.sections.iter().filter(|section| section.is_loaded());
    let ranges = loaded.map(|section| {
        let start = section.offset.0;
        (start..start.saturating_add(section.size), kind_of(section))
    });
    Some(ranges.collect())
}

fn kind_of(section: &Section<'_>) -> FaultKind {
    match SectionType(section.kind) {
        _ if section.is_executable() => FaultKind::Text,
        _ if section.is_writable() => FaultKind::WrittenData,
        SHT_STRTAB | SHT_DYNSYM | SHT_HASH | SHT_GNU_HASH | SHT_GNU_VERSYM | SHT_GNU_VERDEF
        | SHT_GNU_VERNEED => FaultKind::Names,
        SHT_REL | SHT_RELA | SHT_RELR => FaultKind::Relocations,
        _ => FaultKind::ReadOnlyData,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LISTING: &str = "\
55d0c0010000-55d0c0110000 r-xp 00010000 fe:00 1234                       /opt/my tools/git
55d0c0110000-55d0c0120000 rw-p 00110000 fe:00 1234                       /opt/my tools/git
55d0c0120000-55d0c0130000 rw-p 00000000 00:00 0
55d0c0140000-55d0c0150000 rw-p 00000000 00:00 0                          [heap]
7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0                          [vdso]
";

    #[test]
    fn zeros_after_the_data_of_a_file_belong_to_it() {
        let file = |offset, is_writable| Content::File {
            path: PathBuf::from("/opt/my tools/git"),
            offset,
            is_writable,
        };
        let data = file(0x11_0000, true);
        let contents: Vec<Content> = parse(LISTING).into_iter().map(|region| region.content).collect();
        assert_eq!(
            contents,
            [file(0x1_0000, false), data.clone(), data, Content::Anonymous, Content::Kernel]
        );
    }

    proptest! {
        #[test]
        fn any_listing_is_survived(listing in "([0-9a-f]{0,20}-?[0-9a-f]{0,20} [rwxp-]{0,5} [0-9a-f]{0,9} .{0,30}\n){0,20}") {
            for region in parse(&listing) {
                prop_assert!(region.range.start <= region.range.end);
            }
        }
    }
}
