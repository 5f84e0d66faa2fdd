//! Runs the verifier and inspects its proof.

use reorder_verify::{Check, VerifyOptions, VerifyReport, verify};

/// The report about a pair whose old image is well formed.
pub(crate) fn report(old: &[u8], new: &[u8]) -> VerifyReport {
    verify(old, new, VerifyOptions::default()).expect("the old image can be read")
}

/// Panics with the differences unless the pair is proven.
pub(crate) fn assert_proven(old: &[u8], new: &[u8]) -> VerifyReport {
    let report = report(old, new);
    assert!(report.is_proven(), "{:#?}", report.differences);
    report
}

/// How much `check` looked at.
pub(crate) fn count(report: &VerifyReport, check: Check) -> u64 {
    report.checks.iter().filter(|summary| summary.check == check).map(|summary| summary.count).sum()
}
