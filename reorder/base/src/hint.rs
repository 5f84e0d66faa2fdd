//! What a user can do next, without the words of any command line.
//!
//! The library decides what helps; only a command knows how its options are spelled, so only a command turns a hint into
//! text. A hint about how to compile, link or use another program is text already.

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// Advice that needs no option of ours.
    Advice(String),
    /// Name a regular file for the output.
    OutputFile,
    /// Write to another file, or allow the input to be replaced.
    OutputOrInPlace,
    /// Choose one image of a file that holds several, such as the one with this name.
    ChooseArchitecture(Option<String>),
    /// Do not choose an image in a file that holds one.
    LeaveOutArchitecture,
    /// Give the image in which no function was copied yet.
    ImageWithoutCopies,
    /// Do without copies of functions, or remove what forbids them.
    LeaveOutCopies {
        /// What allows the copies, if anything does.
        otherwise: Option<&'static str>,
    },
    /// Leave out the relocations that the linker kept, or do without copies of functions.
    LeaveOutRelocations,
    /// Empty debug information that is damaged, or keep it as it is.
    DropOrKeepDebugInformation,
    /// Empty debug information that cannot be brought up to date, or accept that it is wrong.
    DropOrDistrustDebugInformation,
    /// Keep the input, or write an output whose debug information is as before, so that its map leads back.
    KeepWayBack,
    /// Do without a map, or without the debug information that it cannot restore.
    LeaveOutMap,
    /// Give another map.
    Map(MapHint),
    /// Decide on debug information and build-id as when the map was written.
    OptionsOfMap,
    /// Give the linker an order file instead of moving functions.
    OrderFile {
        /// What else helps.
        otherwise: OrderFileAlternative,
    },
    /// Give the linker an order file, so that the build makes its memory dump with functions in their places.
    OrderBeforeDump,
    /// Look up why functions are pinned, and accept that more of them stay.
    AcceptPins,
    /// Record runs.
    Record {
        /// What is recorded, such as `a run`.
        what: &'static str,
        /// What else gives the same.
        otherwise: Option<&'static str>,
    },
    /// Record the program again.
    RecordAgain {
        /// The program, as a shell shows it.
        program: String,
        /// Whether the traces may be of this program under another path: then names of functions find it.
        may_use_names: bool,
    },
    /// Compare pages, where one read of the disk brings in too much to compare faults.
    PagesInPlaceOfFaults,
    /// Merge samples of traces that the same seed drew.
    MergeSeed(u64),
    /// Merge samples of traces that were drawn from the same groups.
    MergeStrata(SampledGroups),
    /// Give files without which a trace file cannot be interpreted. In a box, which keeps errors small.
    Companion(Box<WantedCompanions>),
    /// Record with another system.
    OtherRecorder {
        /// Which, in words.
        advice: String,
    },
    /// Use the program where it can run.
    OtherSystem {
        /// The processor that it is for, if it has a name.
        processor: Option<&'static str>,
        /// What to do there.
        purpose: RunPurpose,
    },
    /// Move functions of a program of another system, by traces that are recorded there.
    RecordElsewhere {
        /// The program's path, quoted for a shell.
        program: String,
        /// What to do with the traces.
        then: RecordedUse,
    },
    /// Run a program that loads this library.
    ProgramOfLibrary {
        /// The library's path, quoted for a shell.
        library: String,
    },
    /// Simulate the startup instead of measuring it.
    Simulate,
    /// Name a program to measure.
    MeasureProgram,
    /// See what the system allows.
    Diagnose,
    /// Measure again, or with files that stay in memory.
    MeasureWarm,
    /// Repeat the run so many times at least.
    LeastRuns(usize),
    /// Repeat the run so many times for an interval, or accept less confidence.
    RunsForConfidence(usize),
    /// Repeat the run so many times, or measure when nothing else runs.
    RunsOrQuiet(usize),
    /// Repeat the run so many times to tell two programs apart.
    RunsToNarrowDown(usize),
    /// Measure a run that ends by itself, or wait longer.
    MoreTimeToMeasure,
    /// Compare runs that end by themselves and print less, or wait longer.
    MoreTimeToCheck,
    /// Report an image and the arguments with which the moved program crashes.
    ReportCrash,
    /// Say when a run that does not end by itself is to end, or wait longer.
    StopRuns,
}

/// Files without which a trace file cannot be interpreted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCompanions {
    /// Which files, in words.
    pub request: String,
    /// A placeholder or name for each, such as `PROGRAM`.
    pub files: Vec<String>,
}

/// Which map is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapHint {
    /// That of this image.
    OfImage,
    /// One that this version wrote.
    OfThisVersion,
    /// The map as it was written, unchanged.
    Unchanged,
    /// A complete copy.
    Whole,
    /// That of the image with copies; to make that image again, what is to be copied.
    OfCopies,
}

/// What helps besides an order file for the linker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderFileAlternative {
    /// To place fewer functions first.
    FewerFirst,
    /// To accept what records of Swift keep in place.
    AcceptSwiftPins,
}

/// From what traces are drawn, so many from each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampledGroups {
    /// The runs of one image.
    Image,
    /// The runs of one image with the same arguments.
    Command,
}

/// Why a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPurpose {
    /// To record which functions run first.
    Record,
    /// To count faults and take times.
    Measure,
    /// To compare an original with its result.
    Check,
}

/// What traces of another system are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedUse {
    /// To move the functions.
    Apply,
    /// To simulate the startup.
    Simulate,
    /// To simulate the startup with an old and a new layout.
    Compare,
}

impl Hint {
    /// One file without which a trace file cannot be interpreted: which it is in words, and a placeholder or name.
    pub fn companion(request: impl Into<String>, file: impl Into<String>) -> Self {
        Self::companions(request, vec![file.into()])
    }

    /// Several such files.
    pub fn companions(request: impl Into<String>, files: Vec<String>) -> Self {
        Self::Companion(Box::new(WantedCompanions { request: request.into(), files }))
    }

    /// The text of advice that needs no option of ours; hints of other kinds have none.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        match self {
            Self::Advice(text) => Some(text),
            _ => None,
        }
    }
}

impl From<String> for Hint {
    fn from(text: String) -> Self {
        Self::Advice(text)
    }
}

impl From<&str> for Hint {
    fn from(text: &str) -> Self {
        Self::Advice(text.to_owned())
    }
}
