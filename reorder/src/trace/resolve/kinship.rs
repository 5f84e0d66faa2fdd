//! Whether a trace belongs to an image, and whether its addresses do.

use crate::image::functions::FunctionTable;
use crate::trace::{Event, ImageIdentity, Location, Trace};

/// What a trace and an image have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kinship {
    /// Addresses are believed.
    SameBuild,
    /// Only names are believed.
    OtherBuild,
    /// Nothing says that it is this image, nothing that it is not: enough of its names decide.
    Unknown,
    /// It is left out.
    OtherImage,
}

/// The kinship of `trace` and the image called `identity`.
pub(super) fn kinship(trace: &Trace, functions: &FunctionTable<'_>, identity: &ImageIdentity) -> Kinship {
    let traced = &trace.image;
    match (&traced.build_id, &identity.build_id) {
        (Some(recorded), Some(given)) if recorded == given => return Kinship::SameBuild,
        // A list of no image is meant for whatever it is given with.
        (None, _) if traced.path.is_none() => return Kinship::SameBuild,
        (Some(_), Some(_)) if traced.path.is_none() => return Kinship::Unknown,
        _ => {}
    }
    if traced.path.is_none() {
        return Kinship::Unknown;
    }
    let is_same_file = traced.path == identity.path;
    let is_namesake = file_name(traced) == file_name(identity);
    match (&traced.build_id, &identity.build_id) {
        (Some(_), Some(_)) if is_namesake => Kinship::OtherBuild,
        (Some(_), Some(_)) => Kinship::OtherImage,
        (None, None) if is_same_file => Kinship::SameBuild,
        // One of them has no build-id, or both are copies: only the addresses themselves can tell.
        _ if (is_namesake || traced.build_id.is_none()) && is_plausible(trace, functions) => {
            Kinship::SameBuild
        }
        _ if is_namesake => Kinship::OtherBuild,
        _ => Kinship::OtherImage,
    }
}

fn file_name(identity: &ImageIdentity) -> Option<&std::ffi::OsStr> {
    identity.path.as_deref()?.file_name()
}

/// Whether all addresses are functions of the image, with the sizes and names that the trace states.
fn is_plausible(trace: &Trace, functions: &FunctionTable<'_>) -> bool {
    let is_exact = |event: &Event| match event.location {
        Location::Image(_) => agrees(event, functions),
        Location::Inside(address) => functions.containing(address).is_some_and(|function| {
            let start = functions.get(function).start;
            event.name.as_ref().is_none_or(|name| functions.names_at(start).any(|known| known == &**name))
        }),
        _ => false,
    };
    !trace.events.is_empty() && trace.events.iter().all(is_exact)
}

fn agrees(event: &Event, functions: &FunctionTable<'_>) -> bool {
    let Location::Image(address) = event.location else { return false };
    let known = functions.names_at(address).next().is_some();
    let is_named = event
        .name
        .as_ref()
        .is_none_or(|name| !known || functions.names_at(address).any(|known| known == &**name));
    is_named && super::starting_at(event, address, functions).is_some()
}
