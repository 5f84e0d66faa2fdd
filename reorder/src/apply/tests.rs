//! What the verifier does not accept is refused, by the code of the kind of image.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use super::judge;
use crate::error::{Error, ErrorKind};
use crate::image::refusal::RefusalCode;
use crate::verify::{VerifyOptions, verify};

#[test]
fn what_is_not_proven_is_refused() {
    let image = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let mut other = image.clone();
    // The file's identity and padding of its first bytes, which nothing may change.
    other[9] ^= 1;
    let refusal = |new: &[u8], code| match judge(verify(&image, new, VerifyOptions::default()), code) {
        Err(Error { kind: ErrorKind::Refused(refusal), .. }) => Some((refusal.code, refusal.reason)),
        _ => None,
    };
    for code in [RefusalCode::R16, RefusalCode::M20] {
        let (found, reason) = refusal(&other, code).unwrap();
        assert_eq!(found, code);
        assert!(reason.contains("1 differences, the first at"), "{reason}");
        let (found, reason) = refusal(&image[..100], code).unwrap();
        assert_eq!(found, code, "{reason}");
    }
    assert_eq!(refusal(&image, RefusalCode::M20), None);
}
