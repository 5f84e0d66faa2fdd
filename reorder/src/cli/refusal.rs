//! The JSON form of a refusal, which holds its cure in words.

use serde::{Serialize, Serializer};

use crate::hints;
use reorder_base::address::Address;
use reorder_base::refusal::{Refusal, RefusalCode};

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
        cure: hints::text(&refusal.cure),
    });
    form.serialize(serializer)
}
