//! Which functions make an image larger than another build of it, when a size is a finding of `reorder gate`.

use std::path::Path;

use crate::cli::scenarios_input::ScenariosInput;
use crate::gate::{Check, Metric, Remark};
use reorder_base::error::Result;
use reorder_image::functions::FunctionTable;
use reorder_layout::simulate::{SizeChange, SizeChanges};
use reorder_report::table::grouped;
use reorder_system::mapped::map_image;
use reorder_trace::Pairing;

/// More functions are counted, not listed.
const MAX_LISTED: usize = 10;

/// The functions that changed since the build at `old`, if some size among `checks` is a finding.
///
/// # Errors
/// An unreadable file at `old`.
pub(super) fn remark_on_growth(
    old: &Path,
    functions: &FunctionTable<'_>,
    checks: &[Check],
    scenarios: &ScenariosInput,
) -> Result<Option<Remark>> {
    let is_size = |check: &Check| {
        matches!(check.key.metric, Metric::TextBytes | Metric::FileBytes | Metric::Compressed)
    };
    if !checks.iter().any(|check| check.verdict.is_finding() && is_size(check)) {
        return Ok(None);
    }
    let bytes = map_image(old)?;
    let image = scenarios.open(old, &bytes)?;
    let old_functions = image.functions();
    let pairing = Pairing::of(&old_functions, functions);
    let sizes = SizeChanges::of(&old_functions, functions, &pairing, MAX_LISTED);
    if sizes.changed == 0 {
        return Ok(None);
    }
    let change = |change: &SizeChange| {
        let kind = match (change.old_bytes, change.new_bytes) {
            (None, _) => " (new)",
            (_, None) => " (gone)",
            _ => "",
        };
        format!("{}{kind} {}", change.name, signed(change.difference()))
    };
    let listed: Vec<String> = sizes.functions.iter().map(change).collect();
    let more = if sizes.changed > listed.len() as u64 { ", …" } else { "" };
    let cause = format!(
        "the size of all functions changed by {} bytes since {}; {} functions changed: {}{more}",
        signed(sizes.new_bytes.cast_signed() - sizes.old_bytes.cast_signed()),
        old.display(),
        grouped(sizes.changed),
        listed.join(", ")
    );
    Ok(Some(Remark { cause, next: None }))
}

fn signed(difference: i64) -> String {
    format!("{}{}", if difference < 0 { "-" } else { "+" }, grouped(difference.unsigned_abs()))
}
