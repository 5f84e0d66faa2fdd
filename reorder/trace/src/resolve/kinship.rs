//! Whether a trace belongs to an image, and whether its addresses do.

use crate::{ImageIdentity, Location, Trace};
use reorder_image::functions::FunctionTable;

/// What a trace and an image have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinship {
    /// Addresses are believed.
    SameBuild,
    /// No evidence against it: addresses are believed unless the name beside them contradicts.
    Unverified,
    /// Only names are believed.
    OtherBuild,
    /// No evidence for or against this image: it belongs if enough of its names are found.
    Unknown,
    /// It is left out.
    OtherImage,
}

/// The kinship of `trace` and the image called `identity`.
pub(super) fn kinship(trace: &Trace, functions: &FunctionTable<'_>, identity: &ImageIdentity) -> Kinship {
    let traced = &trace.image;
    match (&traced.build_id, &identity.build_id) {
        (Some(recorded), Some(given)) if recorded == given => return Kinship::SameBuild,
        // A list that names no image is meant for the image it is given with.
        (None, _) if traced.path.is_none() => return Kinship::Unverified,
        (Some(_), Some(_)) if traced.path.is_none() => return Kinship::Unknown,
        _ => {}
    }
    if traced.path.is_none() {
        return Kinship::Unknown;
    }
    let is_namesake = file_name(traced) == file_name(identity);
    match (&traced.build_id, &identity.build_id) {
        (Some(_), Some(_)) if is_namesake => Kinship::OtherBuild,
        (Some(_), Some(_)) => Kinship::OtherImage,
        (None, None) if traced.path == identity.path => Kinship::Unverified,
        // One of them has no build-id: only the events themselves can decide.
        _ => match Support::of(trace, functions) {
            Support::Confirmed => Kinship::Unverified,
            Support::Possible if is_namesake => Kinship::Unverified,
            _ if is_namesake => Kinship::OtherBuild,
            _ => Kinship::OtherImage,
        },
    }
}

fn file_name(identity: &ImageIdentity) -> Option<&std::ffi::OsStr> {
    identity.path.as_deref()?.file_name()
}

/// What the events say about the image that their addresses are given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Support {
    /// All addresses are functions of it, and at least half of them have the size or the name that the event states.
    Confirmed,
    /// All addresses are functions of it, but any address falls into some function.
    Possible,
    /// Some address is no function of it, or one of another name or size.
    Contradicted,
}

impl Support {
    fn of(trace: &Trace, functions: &FunctionTable<'_>) -> Self {
        let mut confirmed = 0;
        for event in &trace.events {
            let function = match event.location {
                Location::Image(address) => super::starting_at(event, address, functions),
                Location::Inside(address) => functions.containing(address),
                _ => None,
            };
            let Some(function) = function else { return Self::Contradicted };
            let start = functions.get(function).start;
            if !super::name_agrees(event, start, functions) {
                return Self::Contradicted;
            }
            let is_named = event.name.is_some() && functions.names_at(start).next().is_some();
            let is_sized = event.size.is_some() && matches!(event.location, Location::Image(_));
            confirmed += usize::from(is_named || is_sized);
        }
        match confirmed > 0 && confirmed * 2 >= trace.events.len() {
            true => Self::Confirmed,
            false => Self::Possible,
        }
    }
}
