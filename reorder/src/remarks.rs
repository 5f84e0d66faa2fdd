//! Remarks of the verifier as text.
//!
//! In: a [`Remark`]. Out: a sentence for the user.

use reorder_verify::remark::Remark;

/// The remark in words.
#[must_use]
pub fn text(remark: &Remark) -> String {
    match remark {
        Remark::BuildIdChanged => "the build-id changed".to_owned(),
        Remark::DebugLinkChanged => "the checksum of the debug link changed".to_owned(),
        Remark::DebugSectionsDropped(count) => format!("{count} debug sections were dropped"),
        Remark::DebugSectionsStale(count) => {
            format!("{count} debug sections still describe the old addresses")
        }
        Remark::UndecodableFunctions(count) => {
            format!("{count} functions could not be decoded; they are unchanged")
        }
        Remark::UndecodableGaps(bytes) => {
            format!("{bytes} bytes of code outside of functions could not be decoded; they are unchanged")
        }
        Remark::KeptRelocationsLeftOut(section) => format!("the relocations in {section} were left out"),
        Remark::PointersAssumed { functions, words } => format!(
            "assumed, not proven: {words} words of data, and operands, are pointers to {functions} functions \
             (--assume-pointers)"
        ),
        Remark::UnknownSearchTable => {
            "the unwind search table has an unknown form; it was compared byte by byte".to_owned()
        }
        Remark::OfImage { image, remark } => format!("{image}: {}", text(remark)),
    }
}
