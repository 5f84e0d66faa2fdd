//! Hints of the library as text, in the options of the linker wrapper or of the plugin.
//!
//! In: a [`Hint`]. Out: what a user can do or type. Hints about other commands than a link have no text.

use reorder_base::hint::Hint;

/// How options are spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Among the arguments of the linker, as `reorder-ld` takes them.
    Wrapper,
    /// As options of a plugin of the linker.
    Plugin,
}

/// The hint in words; `None` for what only other commands can meet.
#[must_use]
pub(crate) fn text(hint: &Hint, spelling: Spelling) -> Option<String> {
    match hint {
        Hint::Advice(text) => Some(text.clone()),
        Hint::Companion(wanted) => {
            let options: Vec<String> =
                wanted.files.iter().map(|file| spelled(spelling, "companion", file)).collect();
            Some(format!("{}: {}", wanted.request, options.join(" ")))
        }
        Hint::Record { what, otherwise } => {
            let otherwise = otherwise.map_or_else(String::new, |text| format!("; or {text}"));
            Some(format!("record {what}: reorder record -o traces -- PROGRAM ARGUMENTS{otherwise}"))
        }
        Hint::RecordAgain { program, .. } => {
            Some(format!("record again: reorder record -o traces -- {program} ARGUMENTS"))
        }
        Hint::DropOrKeepDebugInformation => Some(format!(
            "{} empties the debug information, {} leaves it as it is",
            spelled(spelling, "debug", "drop"),
            spelled(spelling, "debug", "keep-stale")
        )),
        Hint::DropOrDistrustDebugInformation => Some(format!(
            "choose: {} empties it, {} leaves it wrong",
            spelled(spelling, "debug", "drop"),
            spelled(spelling, "debug", "keep-stale")
        )),
        Hint::OrderBeforeDump => Some(
            "give the order to the linker: the build then makes the dump with what was linked".to_owned(),
        ),
        // They are about outputs, maps, copies, samples, Mach-O images and runs, none of which a link asks for.
        Hint::OutputFile
        | Hint::OutputOrInPlace
        | Hint::ChooseArchitecture(_)
        | Hint::LeaveOutArchitecture
        | Hint::ImageWithoutCopies
        | Hint::ProgramOfLibrary { .. }
        | Hint::LeaveOutCopies { .. }
        | Hint::LeaveOutRelocations
        | Hint::KeepWayBack
        | Hint::LeaveOutMap
        | Hint::Map(_)
        | Hint::OptionsOfMap
        | Hint::OrderFile { .. }
        | Hint::AcceptPins
        | Hint::MergeSeed(_)
        | Hint::MergeStrata(_)
        | Hint::OtherRecorder { .. }
        | Hint::OtherSystem { .. }
        | Hint::RecordElsewhere { .. }
        | Hint::Simulate
        | Hint::MeasureProgram
        | Hint::Diagnose
        | Hint::MeasureWarm
        | Hint::LeastRuns(_)
        | Hint::RunsForConfidence(_)
        | Hint::RunsOrQuiet(_)
        | Hint::RunsToNarrowDown(_)
        | Hint::MoreTimeToMeasure
        | Hint::MoreTimeToCheck
        | Hint::ReportCrash
        | Hint::PagesInPlaceOfFaults
        | Hint::StopRuns => None,
    }
}

fn spelled(spelling: Spelling, option: &str, value: &str) -> String {
    match spelling {
        Spelling::Wrapper => format!("--reorder-{option}={value}"),
        Spelling::Plugin => format!("{option}={value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_spelled_as_each_takes_them() {
        let companion = Hint::companion("give the program", "PROGRAM");
        for (spelling, wanted) in [
            (Spelling::Wrapper, "give the program: --reorder-companion=PROGRAM"),
            (Spelling::Plugin, "give the program: companion=PROGRAM"),
        ] {
            assert_eq!(text(&companion, spelling).as_deref(), Some(wanted));
        }
        assert_eq!(text(&Hint::LeaveOutArchitecture, Spelling::Wrapper), None);
    }
}
