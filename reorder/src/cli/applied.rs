//! What `reorder apply` made of one file, for all kinds of files.

use serde::Serialize;

use crate::cli::talk::Talk;
use crate::cli::trades;
use crate::exit_status::ExitStatus;
use reorder_base::error::{Error, ErrorKind};
use reorder_base::refusal::RefusalCode;
use reorder_layout::Traded;
use reorder_relocate::apply::ApplySummary;
use reorder_relocate::apply::clones::CloneSummary;
use reorder_relocate::layout_map::LayoutMap;

/// A file in which the functions of at least one image were moved.
pub(crate) struct AppliedFile {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// What moved, in all images together.
    pub summary: ApplySummary,
    /// What the file lacks or needs again, in words.
    pub warnings: Vec<String>,
    /// Whether the file is the same as before.
    pub is_unchanged: bool,
    /// The map of each image that moved, with its processor's name; empty unless maps are requested.
    pub maps: Vec<(&'static str, LayoutMap)>,
    /// Images of the file that were left unchanged.
    pub left: Vec<LeftImage>,
    /// What was traded for size, if exactly one image was laid out.
    pub traded: Traded,
}

impl AppliedFile {
    /// An image in which only names changed their place.
    pub(crate) fn with_names(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            summary: ApplySummary::default(),
            warnings: Vec::new(),
            is_unchanged: false,
            maps: Vec::new(),
            left: Vec::new(),
            traded: Traded::default(),
        }
    }
}

/// One of several images of a file, which could not be moved.
#[derive(Clone, Debug, Serialize)]
pub struct LeftImage {
    /// Its name in the file: its processor or its path.
    pub image: String,
    /// The code, if it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<RefusalCode>,
    /// Why it stayed.
    pub reason: String,
}

impl LeftImage {
    /// The image called `image`, which `error` keeps from moving.
    pub fn new(image: impl Into<String>, error: &Error) -> Self {
        let code = match &error.kind {
            ErrorKind::Refused(refusal) => Some(refusal.code),
            _ => None,
        };
        Self { image: image.into(), code, reason: error.to_string() }
    }
}

/// Whether a result was made and our own proof rejected it.
pub(crate) fn is_failed_proof(code: RefusalCode) -> bool {
    matches!(code, RefusalCode::MachOFailedVerification | RefusalCode::FailedVerification)
}

/// A result that our own proof rejects is a finding, even if other images of the file moved. Images that are left unchanged
/// for other reasons are not.
pub(crate) fn status_of(left: &[LeftImage]) -> ExitStatus {
    if left.iter().any(|image| image.code.is_some_and(is_failed_proof)) {
        ExitStatus::Finding
    } else {
        ExitStatus::Success
    }
}

/// What was traded, if exactly one image was laid out. The trades of several images have no sum: each is noted by the name of
/// its image.
pub fn of_only_image(traded: Vec<(String, Traded)>, talk: &Talk) -> Traded {
    match <[(String, Traded); 1]>::try_from(traded) {
        Ok([(_, only)]) => only,
        Err(several) => {
            for (name, traded) in several {
                trades::text(&traded).lines().for_each(|line| talk.note(&format!("{name}: {line}")));
            }
            Traded::default()
        }
    }
}

/// The sum of the summaries of two images.
pub fn joined(mut all: ApplySummary, next: ApplySummary) -> ApplySummary {
    all.functions += next.functions;
    all.functions_moved += next.functions_moved;
    all.functions_movable += next.functions_movable;
    all.pinned.extend(next.pinned);
    all.warnings.extend(next.warnings);
    all.clones = match (all.clones, next.clones) {
        (Some(one), Some(other)) => Some(joined_clones(one, other)),
        (one, other) => one.or(other),
    };
    all
}

fn joined_clones(mut all: CloneSummary, next: CloneSummary) -> CloneSummary {
    all.functions += next.functions;
    all.fragments += next.fragments;
    all.bytes += next.bytes;
    all.functions_saving_no_page += next.functions_saving_no_page;
    all.skipped.extend(next.skipped);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use reorder_base::refusal::Refusal;

    // case: a universal file of which one image stays
    #[test]
    fn only_a_result_that_was_not_proven_is_a_finding() {
        let left = |code: RefusalCode| {
            let error = Error::from(Refusal::new(code, "some reason", "some cure"));
            LeftImage::new("arm64", &error)
        };
        let damaged = LeftImage::new("a.so", &Error::malformed(0, "cut off"));
        assert_eq!(status_of(&[]), ExitStatus::Success);
        assert_eq!(status_of(&[left(RefusalCode::MachORuntimeTables), damaged]), ExitStatus::Success);
        for code in [RefusalCode::MachOFailedVerification, RefusalCode::FailedVerification] {
            assert_eq!(status_of(&[left(RefusalCode::MachORuntimeTables), left(code)]), ExitStatus::Finding);
        }
    }

    #[test]
    fn copies_of_all_images_are_counted() {
        let with = |functions: usize| ApplySummary {
            functions,
            clones: (functions > 1).then(|| CloneSummary {
                functions,
                fragments: 1,
                bytes: 10,
                functions_saving_no_page: 2,
                assumed_pointers: None,
                skipped: Vec::new(),
            }),
            ..ApplySummary::default()
        };
        let sum = joined(joined(with(2), with(1)), with(3));
        assert_eq!(sum.functions, 6);
        let figures =
            |clones: CloneSummary| (clones.functions, clones.bytes, clones.functions_saving_no_page);
        assert_eq!(sum.clones.map(figures), Some((5, 20, 4)));
    }
}
