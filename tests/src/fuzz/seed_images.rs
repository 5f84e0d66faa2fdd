//! The small images of `tests/fuzz/images`, and how the bytes of an input select and damage them.

use std::fs;
use std::sync::OnceLock;

use reorder_base::error::{Error, ErrorKind};
use reorder_relocate::layout_map::LayoutMap;

use crate::mutation::SeedImage;
use crate::workspace;

/// A damaged image, and a number for the remaining choices.
pub(super) struct Case {
    /// The image.
    pub(super) image: Vec<u8>,
    /// Whether anything was edited.
    pub(super) is_damaged: bool,
    /// Chooses the permutation and the options.
    pub(super) seed: u8,
}

impl Case {
    /// Checks the outcome: a damaged image may be refused, with a message that explains it.
    pub(super) fn judge(&self, outcome: Result<(), Error>) {
        if let Err(error) = outcome {
            let is_explained = !error.to_string().is_empty() && !matches!(error.kind, ErrorKind::Io(_));
            assert!(is_explained, "{error:?}");
            assert!(self.is_damaged, "a healthy image is refused: {error}");
        }
    }

    /// The map that leads back. In a damaged image, functions may be pinned once they have moved, which the
    /// command reports; then there is no map.
    pub(super) fn way_back(&self, map: Result<LayoutMap, Error>) -> Option<LayoutMap> {
        map.inspect_err(|error| assert!(self.is_damaged, "no map leads back: {error}")).ok()
    }
}

/// The images whose names begin with `prefix`, in order of name: inputs depend on that order.
fn images(prefix: &str) -> Vec<SeedImage> {
    let folder = workspace::root().join("tests/fuzz/images");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("the images are a part of the repository")
        .map(|entry| entry.expect("a readable folder").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    // Inputs choose images by their position.
    let expected = if prefix == "macho" { 8 } else { 12 };
    assert_eq!(names.len(), expected, "other images: make the kept inputs anew");
    let read = |name: String| {
        let bytes = fs::read(folder.join(&name)).expect("a readable image");
        match prefix {
            "macho" => SeedImage::macho(name, bytes),
            _ => SeedImage::new(name, bytes),
        }
        .expect("a healthy image")
    };
    names.into_iter().map(read).collect()
}

/// The case of an input: a byte for the image, one for the seed, then edits. None for an input that is too short.
pub(super) fn elf_case(input: &[u8]) -> Option<Case> {
    static IMAGES: OnceLock<Vec<SeedImage>> = OnceLock::new();
    case(IMAGES.get_or_init(|| images("elf")), input)
}

/// As [`elf_case`], of a Mach-O image.
pub(super) fn macho_case(input: &[u8]) -> Option<Case> {
    static IMAGES: OnceLock<Vec<SeedImage>> = OnceLock::new();
    case(IMAGES.get_or_init(|| images("macho")), input)
}

fn case(images: &[SeedImage], input: &[u8]) -> Option<Case> {
    let [image, seed, edits @ ..] = input else { return None };
    let healthy = &images[usize::from(*image) % images.len()];
    let image = healthy.edited(edits);
    Some(Case { is_damaged: image != healthy.bytes, image, seed: *seed })
}
