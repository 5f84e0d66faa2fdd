//! The files that a recording found mapped, and how their offsets become addresses.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::processes::Mapping;
use crate::formats::image_traces::recorded_image;
use crate::{Companion, CompanionImage, Companions, ImageIdentity, Name, Note};
use reorder_base::address::{Address, RuntimeAddress};
use reorder_base::hint::Hint;

/// Files by number.
#[derive(Default)]
pub(super) struct Images {
    identities: Vec<ImageIdentity>,
    numbers: BTreeMap<(PathBuf, Option<Vec<u8>>), u32>,
    /// What the recorder noted at its end, for mappings that do not say it themselves.
    build_ids: BTreeMap<PathBuf, Vec<u8>>,
}

impl Images {
    /// What was noted of a file apart from its mappings.
    pub(super) fn note_build_id(&mut self, path: &[u8], build_id: Vec<u8>) {
        if let Some(path) = image_path(path) {
            self.build_ids.insert(path, build_id);
        }
    }

    /// The number of a mapped file; `None` for memory without a persistent file.
    pub(super) fn number(&mut self, path: &[u8], build_id: Option<Vec<u8>>) -> Option<u32> {
        let path = image_path(path)?;
        let build_id = build_id.or_else(|| self.build_ids.get(&path).cloned());
        let next = self.identities.len() as u32;
        let number = *self.numbers.entry((path.clone(), build_id.clone())).or_insert(next);
        if number == next {
            self.identities.push(ImageIdentity { path: Some(path), build_id });
        }
        Some(number)
    }

    pub(super) fn identity(&self, number: u32) -> ImageIdentity {
        self.identities.get(number as usize).cloned().unwrap_or_default()
    }
}

/// Special memory has a name in brackets, or of a device or anonymous file, and no image that could be laid out.
fn image_path(path: &[u8]) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt as _;
    const NO_IMAGE: [&[u8]; 8] =
        [b"[", b"//", b"/dev/", b"/memfd:", b"/SYSV", b"anon_inode:", b"inlined", b"socket:"];
    let is_image = !path.is_empty() && !NO_IMAGE.iter().any(|prefix| path.starts_with(prefix));
    is_image.then(|| PathBuf::from(std::ffi::OsStr::from_bytes(path)))
}

/// The file itself, if there is one that fits.
pub(super) struct OpenImage<'data> {
    identity: ImageIdentity,
    file: Option<File<'data>>,
}

enum File<'data> {
    Given(&'data Companion),
    Found(Companion),
}

impl<'data> OpenImage<'data> {
    /// The companion with the recorded build-id, else the file at the recorded path unless it is another build. Without
    /// a recorded build-id, the companion of that name, else the file.
    pub(super) fn find(
        identity: ImageIdentity,
        companions: &'data Companions,
        notes: &mut Vec<Note>,
    ) -> Self {
        let companion = companions.iter().find(|companion| {
            CompanionImage::parse(companion).is_some_and(|image| fits(&identity, &image.identity))
        });
        let file = companion.map(File::Given).or_else(|| from_disk(&identity, notes).map(File::Found));
        Self { identity, file }
    }

    pub(super) fn parse(&self) -> Option<CompanionImage<'_>> {
        self.file.as_ref().and_then(|file| match file {
            File::Given(companion) => CompanionImage::parse(companion),
            File::Found(companion) => CompanionImage::parse(companion),
        })
    }

    /// With the build-id of the file that fits, if the recording has none.
    pub(super) fn identity(&self) -> ImageIdentity {
        let of_file = || self.parse().and_then(|image| image.identity.build_id);
        ImageIdentity {
            path: self.identity.path.clone(),
            build_id: self.identity.build_id.clone().or_else(of_file),
        }
    }
}

fn fits(recorded: &ImageIdentity, found: &ImageIdentity) -> bool {
    let name =
        |identity: &ImageIdentity| identity.path.as_deref().and_then(Path::file_name).map(ToOwned::to_owned);
    match (&recorded.build_id, &found.build_id) {
        (Some(recorded), Some(found)) => recorded == found,
        _ => name(recorded).is_some() && name(recorded) == name(found),
    }
}

fn from_disk(identity: &ImageIdentity, notes: &mut Vec<Note>) -> Option<Companion> {
    const NOT_ON_DISK: [&str; 3] = ["/proc", "/sys", "/dev"];
    let path = identity.path.as_deref().filter(|path| path.is_absolute())?;
    if NOT_ON_DISK.iter().any(|root| path.starts_with(root)) {
        return None;
    }
    let companion = recorded_image(path)?;
    let found = CompanionImage::parse(&companion)?.identity.build_id;
    if identity.build_id.is_some() && found != identity.build_id {
        notes.push(
            Note::new(format!("{} is not the build that was recorded", path.display()))
                .with_hint(Hint::companion("give the recorded build", "IMAGE")),
        );
        return None;
    }
    Some(companion)
}

/// Where a sample lies.
pub(super) enum Spot {
    /// In an image, as that states addresses.
    Image {
        address: Address,
        /// Start and name of the function, where symbols tell.
        function: Option<(Address, Name)>,
    },
    /// Only the place in memory is known.
    Memory(RuntimeAddress),
}

/// The place of the byte `distance` bytes after the start of `mapping`.
///
/// Without the file its segments are unknown, and linkers differ in how far addresses lie from offsets. A program at
/// a fixed address has its addresses in memory as stated; of others only the place in memory is known. `None` for an offset
/// in a file that was not mapped.
pub(super) fn spot(image: Option<&CompanionImage<'_>>, mapping: Mapping, address: u64) -> Option<Spot> {
    /// Where programs that choose their own address stay below.
    const FIXED_ADDRESSES: u64 = 1 << 32;
    let offset = mapping.offset.wrapping_add(address.wrapping_sub(mapping.start));
    match image {
        Some(image) => {
            let address = image.address_of_offset(offset)?;
            Some(Spot::Image { address, function: image.function_containing(address) })
        }
        None if mapping.is_whole_file() => None,
        None if mapping.start < FIXED_ADDRESSES => {
            Some(Spot::Image { address: Address(address), function: None })
        }
        None => Some(Spot::Memory(RuntimeAddress(address))),
    }
}
