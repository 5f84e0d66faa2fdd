//! Companion images of LLVM's raw profiles: where their sections are, and what their functions are called.
//!
//! A profile knows its image by build-id. With the image, the run-time address that a record has becomes an address
//! of the image; profiles without records cannot be read without it.

use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use object::{Object as _, ObjectSection as _, SectionFlags, SectionKind};

use super::llvm_correlate::CorrelatedFunctions;
use super::llvm_raw::RecordVersion;
use crate::companion::build_id_of;
use crate::{Companions, ImageIdentity};
use reorder_base::address::Address;

/// The companions that are images, looked at once for all profiles of a program.
#[derive(Debug, Default)]
pub(crate) struct InstrumentedImages(OnceLock<Vec<InstrumentedImage>>);

impl InstrumentedImages {
    /// In the order of the companions.
    pub(super) fn of<'images>(&'images self, companions: &Companions) -> &'images [InstrumentedImage] {
        self.0.get_or_init(|| {
            let companions = companions.iter().enumerate();
            companions
                .filter_map(|(index, companion)| {
                    let object = object::File::parse(companion.bytes.as_slice()).ok()?;
                    let path = companion.path.canonicalize().unwrap_or_else(|_| companion.path.clone());
                    Some(InstrumentedImage::new(index, path, &object))
                })
                .collect()
        })
    }
}

/// An image of an instrumented program, or its debug file.
#[derive(Debug)]
pub(super) struct InstrumentedImage {
    pub(super) identity: ImageIdentity,
    /// Which companion it is.
    companion: usize,
    names: Option<Address>,
    /// Of all counters.
    pub(super) counters: Option<Range<u64>>,
    /// Addresses of machine code.
    code: Vec<Range<u64>>,
    in_debug_info: OnceLock<Correlated>,
    /// Profiles of any version may ask, in any order; each has the functions as its own version reads them.
    in_sections: Mutex<Vec<(RecordVersion, Correlated)>>,
}

/// The functions that an image knows by itself, or why it knows none.
pub(super) type Correlated = Result<Arc<CorrelatedFunctions>, String>;

impl InstrumentedImage {
    fn new(companion: usize, path: std::path::PathBuf, object: &object::File<'_>) -> Self {
        let range_of = |name| {
            let section = object.section_by_name(name)?;
            Some(section.address()..section.address().checked_add(section.size())?)
        };
        let code = object.sections().filter(is_code);
        Self {
            identity: ImageIdentity { path: Some(path), build_id: build_id_of(object) },
            companion,
            names: range_of("__llvm_prf_names").map(|range| Address(range.start)),
            counters: range_of("__llvm_prf_cnts"),
            code: code
                .filter_map(|section| Some(section.address()..section.address().checked_add(section.size())?))
                .collect(),
            in_debug_info: OnceLock::new(),
            in_sections: Mutex::default(),
        }
    }

    /// What the debug information says, read once.
    pub(super) fn in_debug_info(
        &self,
        read: impl FnOnce() -> Result<CorrelatedFunctions, String>,
    ) -> Correlated {
        self.in_debug_info.get_or_init(|| read().map(Arc::new)).clone()
    }

    /// What the sections say to profiles of `version`, read once.
    pub(super) fn in_sections(
        &self,
        version: RecordVersion,
        read: impl FnOnce() -> Result<CorrelatedFunctions, String>,
    ) -> Correlated {
        let mut known = self.in_sections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, functions)) = known.iter().find(|(other, _)| *other == version) {
            return functions.clone();
        }
        let functions = read().map(Arc::new);
        known.push((version, functions.clone()));
        functions
    }

    /// The file's contents.
    pub(super) fn bytes<'data>(&self, companions: &'data Companions) -> &'data [u8] {
        companions.iter().nth(self.companion).map_or(&[], |companion| companion.bytes.as_slice())
    }

    /// For messages.
    pub(super) fn name(&self) -> String {
        self.identity.to_string()
    }

    /// Whether the image has one of `build_ids`.
    pub(super) fn has_one_of(&self, build_ids: &[&[u8]]) -> bool {
        self.identity.build_id.as_deref().is_some_and(|build_id| build_ids.contains(&build_id))
    }

    /// Whether machine code is at `address`.
    pub(super) fn has_code_at(&self, address: Address) -> bool {
        self.code.iter().any(|range| range.contains(&address.0))
    }

    /// Address of the names; missing when the program was built without them or stripped of them.
    pub(super) fn names(&self) -> Option<Address> {
        self.names
    }
}

/// Debug files have the headers of sections without their contents, which makes them look like data.
fn is_code(section: &object::Section<'_, '_>) -> bool {
    match section.flags() {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.contains(object::elf::SHF_EXECINSTR),
        _ => section.kind() == SectionKind::Text,
    }
}
