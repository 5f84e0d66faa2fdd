//! Hints of the library as text, in the options of this command.
//!
//! In: a [`Hint`]. Out: what a user can do or type. No other file spells an option for a hint of the library.

use reorder_base::hint::{Hint, MapHint, OrderFileAlternative, RecordedUse, RunPurpose, SampledGroups};

/// The hint in words.
#[must_use]
pub fn text(hint: &Hint) -> String {
    match hint {
        Hint::Advice(text) => text.clone(),
        Hint::OutputFile => "give the path of a file with -o FILE".into(),
        Hint::OutputOrInPlace => "give another -o FILE, or say --in-place".into(),
        Hint::ChooseArchitecture(None) => "choose one of them with --arch NAME".into(),
        Hint::ChooseArchitecture(Some(name)) => format!("choose one of them: --arch {name}"),
        Hint::LeaveOutArchitecture => "leave out --arch".into(),
        Hint::ImageWithoutCopies => "give the image as it was before --clone or --layout; a map of --map leads back to it: --order MAP".into(),
        Hint::LeaveOutCopies { otherwise: None } => "leave out --clone or --layout".into(),
        Hint::LeaveOutCopies { otherwise: Some(cure) } => format!("{cure}, or leave out --clone or --layout"),
        Hint::LeaveOutRelocations => {
            "--drop-relocations leaves them out; or leave out --clone or --layout".into()
        }
        Hint::DropOrKeepDebugInformation => {
            "--debug drop empties the debug information, --debug keep-stale leaves it as it is".into()
        }
        Hint::DropOrDistrustDebugInformation => {
            "choose: --debug drop empties it, --debug keep-stale leaves it wrong".into()
        }
        Hint::KeepWayBack => "keep the input, or write the output and its map with --debug keep-stale".into(),
        Hint::LeaveOutMap => "leave out --map, or --debug drop, which forgets parts of the input".into(),
        Hint::Map(wanted) => map(*wanted).into(),
        Hint::OptionsOfMap => {
            "use the same options as when the map was written (--debug, --keep-build-id)".into()
        }
        Hint::OrderFile { otherwise } => order_file(*otherwise),
        Hint::OrderBeforeDump => {
            "give the order to the linker (`reorder order`): the build then makes the dump with the ordered program"
                .into()
        }
        Hint::AcceptPins => {
            "see why with reorder inspect IMAGE, and raise --most-pinned PERCENT if the rest is worth it"
                .into()
        }
        Hint::Record { what, otherwise } => record(what, *otherwise),
        Hint::RecordAgain { program, may_use_names } => record_again(program, *may_use_names),
        Hint::PagesInPlaceOfFaults => {
            "compare the pages touched; `reorder doctor` names the setting of the disk".into()
        }
        Hint::MergeSeed(seed) => {
            format!("merge samples of one seed: reorder traces merge --seed {seed}")
        }
        Hint::MergeStrata(groups) => merge(*groups).into(),
        Hint::Companion(wanted) => companion(&wanted.request, &wanted.files),
        Hint::OtherRecorder { advice } => format!("{advice} (reorder traces --help)"),
        Hint::OtherSystem { processor, purpose } => other_system(*processor, *purpose),
        Hint::RecordElsewhere { program, then } => record_elsewhere(program, *then),
        Hint::ProgramOfLibrary { library } => format!(
            "this is a library, which other programs run: reorder record -o traces --image {library} -- PROGRAM ARGUMENTS"
        ),
        Hint::Simulate => "simulate instead: reorder simulate --help".into(),
        Hint::MeasureProgram => "reorder measure PROGRAM -- ARGUMENTS".into(),
        Hint::Diagnose => "`reorder doctor` shows what forbids ptrace".into(),
        Hint::MeasureWarm => "measure again, or measure the warm start with --warm".into(),
        Hint::LeastRuns(runs) => format!("give at least --runs {runs}"),
        Hint::RunsForConfidence(runs) => format!("--runs {runs}, or a lower --confidence"),
        Hint::RunsOrQuiet(runs) => format!("measure when nothing else runs, or with --runs {runs}"),
        Hint::RunsToNarrowDown(runs) => {
            format!("--runs {runs} narrows it down; pages touched do not vary")
        }
        Hint::MoreTimeToMeasure => {
            format!("measure a run that ends by itself, such as --version; {STOP_RUNS}, or give a longer --time-limit SECONDS")
        }
        Hint::ReportCrash => "nothing was written; this is a defect of reorder: please report this image and these arguments".into(),
        Hint::StopRuns => format!("{STOP_RUNS}, or give a longer --time-limit SECONDS"),
        Hint::MoreTimeToCheck => {
            format!(
                "nothing was written; check a run that ends by itself and prints less; {STOP_RUNS}, or give a longer \
                 --time-limit SECONDS"
            )
        }
    }
}

/// For servers, and for what waits for a user.
const STOP_RUNS: &str =
    "end a run that does not end by itself with --stop-after SECONDS or --until 'a text that it prints'";

fn map(wanted: MapHint) -> &'static str {
    match wanted {
        MapHint::OfImage => "give the map that `reorder apply --map` wrote together with this image",
        MapHint::OfThisVersion => "give the map that `reorder apply --map` of this version wrote",
        MapHint::Unchanged => "give the map as `reorder apply --map` wrote it",
        MapHint::OfCopies => {
            "to copy again, give traces: --layout blocks -t TRACES; to go back, give the image with copies"
        }
        MapHint::Whole => "copy it again from where `reorder apply --map` wrote it",
    }
}

fn order_file(otherwise: OrderFileAlternative) -> String {
    let otherwise = match otherwise {
        OrderFileAlternative::FewerFirst => "place fewer functions first",
        OrderFileAlternative::AcceptSwiftPins => "continue with --allow-swift-pins",
    };
    format!("{otherwise}, or relink with an order file: reorder order IMAGE -t TRACES -o FILE")
}

fn record(what: &str, otherwise: Option<&str>) -> String {
    let otherwise = otherwise.map_or_else(String::new, |text| format!("; or {text}"));
    format!("record {what}: reorder record -o traces -- PROGRAM ARGUMENTS{otherwise}")
}

fn record_again(program: &str, may_use_names: bool) -> String {
    let names = match may_use_names {
        true => {
            "; if they are of the same program at another place, use their names: \
             reorder traces convert --to list -o names.txt TRACES, then -t names.txt"
        }
        false => "",
    };
    format!("record again: reorder record -o traces -- {program} ARGUMENTS{names}")
}

fn merge(groups: SampledGroups) -> &'static str {
    match groups {
        SampledGroups::Image => "merge samples of one kind: reorder traces merge --each image",
        SampledGroups::Command => "merge samples of one kind: reorder traces merge --each command",
    }
}

fn companion(request: &str, files: &[String]) -> String {
    let options: Vec<String> = files.iter().map(|file| format!("--companion {file}")).collect();
    format!("{request}: {}", options.join(" "))
}

fn other_system(processor: Option<&str>, purpose: RunPurpose) -> String {
    let (verb, other_way) = match purpose {
        RunPurpose::Record => {
            ("record", "use a recorder that runs there and whose traces can be read (reorder traces --help)")
        }
        RunPurpose::Measure => ("measure", "simulate its startup: reorder simulate --help"),
        RunPurpose::Check => ("check", "leave out --check, and compare both where they run"),
    };
    match processor {
        Some(name) => format!("{verb} it on {name} with a reorder built for it, or {other_way}"),
        None => other_way.to_owned(),
    }
}

fn record_elsewhere(program: &str, then: RecordedUse) -> String {
    let next = match then {
        RecordedUse::Apply => format!("reorder apply {program} -t TRACES -o FILE"),
        RecordedUse::Simulate => format!("reorder simulate {program} -t TRACES"),
        RecordedUse::Compare => format!("reorder simulate {program} NEW -t TRACES"),
    };
    format!("record its startup where it runs (GUIDE.md, Ship an app), then: {next}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_commands_are_those_of_this_program() {
        let files = vec!["PROGRAM".to_owned(), "FIRST.so".to_owned()];
        let sampled = Hint::Record { what: "a run", otherwise: Some("build it with ranks") };
        for (hint, wanted) in [
            ("link it again".into(), "link it again"),
            (Hint::companions("give both", files), "give both: --companion PROGRAM --companion FIRST.so"),
            (sampled, "record a run: reorder record -o traces -- PROGRAM ARGUMENTS; or build it with ranks"),
            (
                Hint::LeaveOutCopies { otherwise: Some("strip it") },
                "strip it, or leave out --clone or --layout",
            ),
            (
                Hint::OtherSystem { processor: Some("AArch64"), purpose: RunPurpose::Check },
                "check it on AArch64 with a reorder built for it, or leave out --check, and compare both where they run",
            ),
        ] {
            assert_eq!(text(&hint), wanted);
        }
    }
}
