//! A raw file to its profiles, and the profiles to runs.
//!
//! Programs append: one file holds a profile for each instrumented image of each process and each dump, with nothing
//! but zero bytes between them.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};

use super::encoding::Encoding;
use super::profile::{Parsed, Profile};
use crate::Note;
use reorder_base::error::{Error, Result};

/// The profiles of a file and what could not be read of it.
pub(super) struct Split<'data> {
    pub(super) profiles: Vec<Profile<'data>>,
    pub(super) notes: Vec<Note>,
}

/// All profiles of a file up to the first damage.
///
/// # Errors
/// A file whose first profile is not usable.
pub(super) fn split(file: &[u8]) -> Result<Split<'_>> {
    let Parsed { profile, mut end, mut notes } = Profile::parse(file, 0)?;
    let mut profiles = vec![profile];
    while let Some(start) = end.and_then(|end| next_start(file, end)) {
        match check_start(file, start).and_then(|()| Profile::parse(file, start)) {
            Ok(parsed) => {
                profiles.push(parsed.profile);
                notes.extend(parsed.notes);
                end = parsed.end;
            }
            Err(error) => {
                notes.push(abandoned(file, start, profiles.len(), error));
                break;
            }
        }
    }
    Ok(Split { profiles, notes })
}

/// The next byte that is not zero.
fn next_start(file: &[u8], end: usize) -> Option<usize> {
    let zeros = file.get(end..)?.iter().position(|&byte| byte != 0)?;
    Some(end + zeros)
}

fn check_start(file: &[u8], start: usize) -> Result<()> {
    let problem = match file.get(start..).and_then(Encoding::of_magic) {
        None => "something else than a profile",
        Some(_) if !start.is_multiple_of(8) => "a profile that is not aligned to 8 bytes",
        Some(_) => return Ok(()),
    };
    Err(Error::malformed(start as u64, problem))
}

fn abandoned(file: &[u8], start: usize, kept: usize, error: Error) -> Note {
    let left = file.len() - start;
    let message = format!("{}; the {kept} before it are kept, {left} bytes are not read", error.message);
    let note = Note::at(error.offset.unwrap_or(start as u64), message);
    match error.hint {
        Some(hint) => note.with_hint(hint),
        None => note,
    }
}

/// The run of each profile, counted from 1: a run holds each image once, so an image that comes again starts the next.
pub(super) fn runs(profiles: &[Profile<'_>]) -> Vec<u32> {
    let mut images_of_run = HashSet::new();
    let mut run = 1;
    let run_of = |profile| {
        let image = ImageKey::of(profile);
        if images_of_run.contains(&image) {
            images_of_run.clear();
            run += 1;
        }
        images_of_run.insert(image);
        run
    };
    profiles.iter().map(run_of).collect()
}

/// What tells the images of a process apart.
#[derive(PartialEq, Eq, Hash)]
enum ImageKey<'data> {
    BuildIds(&'data [&'data [u8]]),
    /// Without build-ids: a digest of its functions, and the size of its counters.
    Functions(u64, usize),
}

impl<'data> ImageKey<'data> {
    fn of(profile: &'data Profile<'_>) -> Self {
        if !profile.build_ids.is_empty() {
            return Self::BuildIds(&profile.build_ids);
        }
        let mut digest = DefaultHasher::new();
        profile.name_hashes().for_each(|name_hash| digest.write_u64(name_hash));
        Self::Functions(digest.finish(), profile.counters.bytes.len())
    }
}
