//! Profiles without names and records: these are in the program's debug information, or in sections of it that are
//! not loaded.
//!
//! In: the image that a profile came from, or its debug file. Out: its functions with the places of their counters.

mod binary;
mod debug_info;

use std::ops::Range;
use std::sync::Arc;

use object::{Object as _, ObjectSection as _};

use super::llvm_images::{Correlated, InstrumentedImage};
use super::llvm_raw::RecordVersion;
use crate::{Companions, Name};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::hexadecimal::encode;
use reorder_base::hint::Hint;

/// Where a correlated profile's records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Correlation {
    DebugInfo,
    Sections,
}

impl Correlation {
    fn flag(self) -> &'static str {
        match self {
            Self::DebugInfo => "-profile-correlate=debug-info",
            Self::Sections => "-profile-correlate=binary",
        }
    }

    fn place(self) -> &'static str {
        match self {
            Self::DebugInfo => "the debug information of its program",
            Self::Sections => "the sections __llvm_covdata and __llvm_covnames of its program",
        }
    }
}

/// The functions of an image, those with counters in its section of counters.
#[derive(Debug)]
pub(super) struct CorrelatedFunctions {
    pub(super) functions: Vec<CorrelatedFunction>,
    /// Notes on them for the user.
    pub(super) remarks: Vec<String>,
}

/// What a record would have said.
#[derive(Debug)]
pub(super) struct CorrelatedFunction {
    pub(super) name_hash: u64,
    pub(super) name: Option<Name>,
    /// Offset in the section of the counters.
    pub(super) counters: u64,
    pub(super) counter_count: u32,
    pub(super) address: Option<Address>,
}

/// What a profile is, for finding its image.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'data> {
    pub(super) correlation: Correlation,
    pub(super) version: RecordVersion,
    /// None in Mach-O programs.
    pub(super) build_ids: &'data [&'data [u8]],
    /// Bytes of all counters.
    pub(super) counter_bytes: u64,
    /// Of the profile in its file.
    pub(super) offset: u64,
}

impl Wanted<'_> {
    /// The image of this profile among the companions, and its functions.
    ///
    /// # Errors
    /// No companion, none of this build, or none that has the records.
    pub(super) fn find<'companions>(
        &self,
        companions: &'companions Companions,
    ) -> Result<(&'companions InstrumentedImage, Arc<CorrelatedFunctions>)> {
        let images = companions.llvm_images.of(companions);
        let mut reasons = Vec::new();
        for image in images {
            match self.functions_of(image, companions) {
                Ok(functions) => return Ok((image, functions)),
                Err(reason) => reasons.push(format!("{} {reason}", image.name())),
            }
        }
        let mut message = format!("the names of this profile are in {}", self.correlation.place());
        if let Some(build_id) = self.build_ids.first() {
            message += &format!(", build-id {}", encode(build_id));
        }
        if reasons.is_empty() {
            message += "; no image is given as a companion";
        }
        let message = std::iter::once(message).chain(reasons).collect::<Vec<_>>().join("; ");
        Err(Error::malformed(self.offset, message).with_hint(Hint::companion(
            "give the unstripped program of exactly this build, or its debug file (of Mach-O programs the .dSYM)",
            "FILE",
        )))
    }

    fn functions_of(&self, image: &InstrumentedImage, companions: &Companions) -> Correlated {
        if !self.build_ids.is_empty() && !image.has_one_of(self.build_ids) {
            return Err(match &image.identity.build_id {
                Some(build_id) => format!("is another build ({})", encode(build_id)),
                None => "has no build-id".to_owned(),
            });
        }
        let counters = image.counters.clone().ok_or("has no section __llvm_prf_cnts")?;
        let size = counters.end - counters.start;
        if size != self.counter_bytes {
            return Err(format!("has {size} bytes of counters, the profile {}", self.counter_bytes));
        }
        let bytes = image.bytes(companions);
        let object = object::File::parse(bytes).map_err(|error| format!("cannot be read: {error}"))?;
        let functions = match self.correlation {
            Correlation::DebugInfo => image.in_debug_info(|| debug_info::read(&object, image, &counters)),
            Correlation::Sections => {
                image.in_sections(self.version, || binary::read(&object, self.version, image, &counters))
            }
        };
        functions.map_err(|reason| {
            let other = match self.correlation {
                Correlation::DebugInfo => {
                    object.section_by_name("__llvm_covdata").map(|_| Correlation::Sections)
                }
                Correlation::Sections => None,
            };
            let built = other.map_or(String::new(), |other| format!(" (it was built with {})", other.flag()));
            format!("{reason}{built}; the profile was made with {}", self.correlation.flag())
        })
    }
}

/// Where a counter that is at `address` lies in its section.
fn counter_offset(address: u64, counters: &Range<u64>) -> Option<u64> {
    counters.contains(&address).then(|| address - counters.start)
}

/// Contents of the section called `name`, inflated if need be.
fn contents<'data>(object: &object::File<'data>, name: &str) -> Option<std::borrow::Cow<'data, [u8]>> {
    object.section_by_name(name)?.uncompressed_data().ok().filter(|bytes| !bytes.is_empty())
}
