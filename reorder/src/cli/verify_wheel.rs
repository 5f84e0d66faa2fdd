//! `reorder verify` for two wheels: image by image, and the list of digests.

use serde::Serialize;

use crate::remarks;
use crate::wheel::proof::compare;
use reorder_base::error::Result;
use reorder_report::table::{Table, grouped};
use reorder_report::{Report, Width};
use reorder_verify::{VerifyOptions, VerifyReport, verify};

/// An image that changed.
#[derive(Serialize)]
struct WheelImage {
    image: String,
    #[serde(flatten)]
    report: VerifyReport,
    remarks: Vec<String>,
}

/// The images of two wheels, and their other differences.
#[derive(Serialize)]
pub(super) struct WheelReport {
    images: Vec<WheelImage>,
    /// Differences outside of the images.
    wheel_differences: Vec<String>,
}

impl WheelReport {
    /// Whether the new wheel is the old one with functions of its images moved.
    pub(super) fn is_proven(&self) -> bool {
        self.wheel_differences.is_empty() && self.images.iter().all(|image| image.report.is_proven())
    }
}

/// Compares the wheels.
///
/// # Errors
/// Wheels that cannot be read.
pub(super) fn verify_wheels(old: &[u8], new: &[u8], options: VerifyOptions) -> Result<WheelReport> {
    let mut images = Vec::new();
    let wheel_differences = compare(old, new, |name, old, new| match verify(old, new, options) {
        Ok(report) => {
            let remarks = report.remarks.iter().map(remarks::text).collect();
            images.push(WheelImage { image: name.to_owned(), report, remarks });
            Ok(None)
        }
        Err(error) => {
            Ok(Some(format!("{name} has other contents, and is not an image that could be moved: {error}")))
        }
    })?;
    Ok(WheelReport { images, wheel_differences })
}

impl Report for WheelReport {
    const COMMAND: &'static str = "verify";

    fn text(&self, width: Width) -> String {
        let mut table = Table::new(["image", "functions", "moved", ""]);
        let mut differences = String::new();
        for WheelImage { image, report, .. } in &self.images {
            let verdict = if report.is_proven() { "proven" } else { "not proven" };
            table.row([image.clone(), grouped(report.functions), grouped(report.moved), verdict.to_owned()]);
            for difference in &report.differences {
                differences.push_str(&format!(
                    "differs: {image}: {}: expected {}, found {}\n",
                    difference.place, difference.expected, difference.found
                ));
            }
        }
        for difference in &self.wheel_differences {
            differences.push_str(&format!("differs: {difference}\n"));
        }
        let end = match self.is_proven() {
            true => "proven: functions of these images moved, their digests follow, nothing else changed\n",
            false => "not proven\n",
        };
        format!("{}{differences}{end}", table.render(width))
    }
}
