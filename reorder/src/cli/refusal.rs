//! What all commands say of a refusal: its cure in words, and the JSON form that holds it.

use serde::{Serialize, Serializer};

use crate::hints;
use reorder_base::address::Address;
use reorder_base::error::{Error, ErrorKind};
use reorder_base::refusal::{Refusal, RefusalCode};

/// Whether the image is refused because too little of its code is known for functions to move.
pub(crate) fn is_too_little_known(refusal: &Refusal) -> bool {
    matches!(refusal.code, RefusalCode::UnknownCode | RefusalCode::UndecodableCode)
}

/// What helps, in words: the cure of the refusal, and copies where they would do.
pub fn cure(refusal: &Refusal) -> String {
    let cure = hints::text(&refusal.cure);
    match is_too_little_known(refusal) {
        true => {
            format!(
                "{cure}; or copy the code used at startup into a new segment, the file grows: reorder apply --layout blocks, or --clone for whole functions"
            )
        }
        false => cure,
    }
}

/// The error with [`cure`] as its hint, if it is a refusal.
pub(crate) fn with_cure(error: Error) -> Error {
    match &error.kind {
        ErrorKind::Refused(refusal) if is_too_little_known(refusal) => {
            let cure = cure(refusal);
            error.with_hint(cure)
        }
        _ => error,
    }
}

#[derive(Serialize)]
struct Form<'refusal> {
    code: RefusalCode,
    reason: &'refusal str,
    address: Option<Address>,
    cure: String,
}

/// Writes the refusal, or `null`.
///
/// # Errors
/// The serializer's.
#[allow(clippy::ref_option)] // what serde passes
pub fn serialize<S: Serializer>(refusal: &Option<Refusal>, serializer: S) -> Result<S::Ok, S::Error> {
    let form = refusal.as_ref().map(|refusal| Form {
        code: refusal.code,
        reason: &refusal.reason,
        address: refusal.address,
        cure: cure(refusal),
    });
    form.serialize(serializer)
}
