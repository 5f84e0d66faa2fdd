//! Notes on profiles without an order.

use super::header::Flags;
use crate::Note;

/// How programs are built so that their profiles have timestamps.
pub(crate) const REBUILD: &str = "rebuild with clang -fprofile-generate -ftemporal-profile (before clang 20: -fprofile-generate \
                       -mllvm -pgo-temporal-instrumentation) or rustc -Cprofile-generate \
                       -Cllvm-args=-pgo-temporal-instrumentation, and run with LLVM_PROFILE_FILE=DIRECTORY/%p.profraw";

/// Why a profile with these flags has no order, and what to do.
pub(super) fn without_timestamps(flags: Flags) -> Note {
    let (reason, also) = if flags.is_temporal() {
        (
            "the compiler made no timestamps, because -pgo-function-entry-coverage leaves no room for them",
            "; -mllvm -pgo-block-coverage is the smallest instrumentation that has them",
        )
    } else if flags.is_intermediate_level() {
        ("this profile has no timestamps", "")
    } else {
        (
            "this profile is of source coverage (-fprofile-instr-generate, -Cinstrument-coverage) without timestamps",
            "",
        )
    };
    Note::new(format!("{reason}: it says which functions ran, not in which order"))
        .with_hint(format!("{REBUILD}{also}"))
}
