//! What a verification says: which checks ran over how much, and the first places that differ.

use std::fmt;

use serde::Serialize;

use crate::remark::Remark;
use reorder_base::address::FileOffset;

/// The obligations of a relocated image, in the order in which they are checked and reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Check {
    /// Both files parse and their functions correspond one to one.
    Correspondence,
    /// Headers, sizes and every byte that no other check claims are the same.
    Unchanged,
    /// Unwind entries are the same except for their start.
    UnwindEntries,
    /// The search table of the unwinder is complete and sorted.
    UnwindSearchTable,
    /// Functions hold the same instructions; only address fields differ, each by the address map.
    Functions,
    /// Moving the new functions back gives the old bytes.
    Reverse,
    /// Code outside of functions is untouched and refers to nothing that moved.
    Gaps,
    /// The bytes between the new functions are old padding or filler.
    Padding,
    /// The entry point, `.dynamic` and the loader's relocations follow the map.
    LoaderPointers,
    /// Symbol values follow the map.
    Symbols,
    /// In a program at a fixed address: no constant can be the address of a function that moved.
    AbsoluteAddresses,
    /// Jump tables follow the functions they belong to.
    JumpTables,
    /// Relocations that the linker kept describe the new fields.
    StaticRelocations,
    /// Probe notes follow the map; other notes are the same.
    Notes,
    /// Debug information says of every function what it said before.
    DebugInformation,
    /// Copies of functions do what the originals do, and every reference to a copy led to its original.
    Copies,
    /// Mach-O: the load commands are the same except for the identity and the positions in `__LINKEDIT`.
    LoadCommands,
    /// Mach-O: the parts of `__LINKEDIT` lie inside it, apart and aligned; those without addresses are the same.
    LinkEdit,
    /// Mach-O: the function starts are the old ones, moved and sorted.
    FunctionStarts,
    /// Mach-O: the ranges of data in code are the old ones, moved and sorted.
    DataInCode,
    /// Mach-O: the same exported names, their addresses by the map.
    Exports,
    /// Mach-O: distances in data that lead to functions follow the map.
    RelativeWords,
    /// Mach-O: the image is signed as before, and every page has its hash.
    Signature,
}

impl Check {
    /// What the check proves, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Correspondence => "functions correspond",
            Self::Unchanged => "unexplained bytes are the same",
            Self::UnwindEntries => "unwind entries",
            Self::UnwindSearchTable => "unwind search table",
            Self::Functions => "instructions and their address fields",
            Self::Reverse => "reverse gives the original",
            Self::Gaps => "code outside of functions",
            Self::Padding => "padding",
            Self::LoaderPointers => "pointers of the loader",
            Self::Symbols => "symbol values",
            Self::AbsoluteAddresses => "absolute addresses",
            Self::JumpTables => "jump tables",
            Self::StaticRelocations => "kept relocations",
            Self::Notes => "notes",
            Self::DebugInformation => "debug information",
            Self::Copies => "copies of functions",
            Self::LoadCommands => "load commands",
            Self::LinkEdit => "parts of __LINKEDIT",
            Self::FunctionStarts => "function starts",
            Self::DataInCode => "data in code",
            Self::Exports => "exported symbols",
            Self::RelativeWords => "distances in data",
            Self::Signature => "signature",
        }
    }
}

/// How much one check looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CheckSummary {
    /// Which check.
    pub check: Check,
    /// What `count` counts, such as `instructions`.
    pub unit: &'static str,
    /// Things looked at.
    pub count: u64,
}

/// One place where the new image is not the relocated old one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Which check found it.
    pub check: Check,
    /// Where in the new file, if the place has one.
    pub offset: Option<FileOffset>,
    /// What the place is, with its address.
    pub place: String,
    /// What the address map demands there.
    pub expected: String,
    /// What is there.
    pub found: String,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Function ranges compared.
    pub functions: u64,
    /// Function ranges that moved.
    pub moved: u64,
    /// How much each check looked at.
    pub checks: Vec<CheckSummary>,
    /// The first differences, in the order of the checks and then of the file.
    pub differences: Vec<Difference>,
    /// All differences, listed or not.
    pub difference_count: u64,
    /// Differences that are allowed, such as the build-id, and what could not be checked.
    #[serde(skip)]
    pub remarks: Vec<Remark>,
}

impl VerifyReport {
    /// Whether the new image is the old one with its functions moved.
    pub fn is_proven(&self) -> bool {
        self.difference_count == 0
    }
}

/// Collects a report; keeps the first differences and counts the rest.
#[derive(Debug)]
pub(crate) struct Findings {
    report: VerifyReport,
    limit: usize,
}

impl Findings {
    /// An empty report that will list at most `limit` differences.
    pub(crate) fn new(limit: usize) -> Self {
        Self { report: VerifyReport::default(), limit }
    }

    /// Says how much a check looked at.
    pub(crate) fn checked(&mut self, check: Check, unit: &'static str, count: usize) {
        self.report.checks.push(CheckSummary { check, unit, count: count as u64 });
    }

    /// Adds a difference.
    pub(crate) fn differs(&mut self, difference: Difference) {
        self.report.difference_count += 1;
        if self.lists_more() {
            self.report.differences.push(difference);
        }
    }

    /// Adds a difference if there is one.
    pub(crate) fn found(&mut self, difference: Option<Difference>) {
        difference.into_iter().for_each(|difference| self.differs(difference));
    }

    /// Whether another difference would be listed; if not, callers skip its description.
    pub(crate) fn lists_more(&self) -> bool {
        self.report.differences.len() < self.limit
    }

    /// Counts a difference that is not listed.
    pub(crate) fn differs_silently(&mut self) {
        self.report.difference_count += 1;
    }

    /// Adds a difference unless `expected == found`; both are shown in hexadecimal.
    ///
    /// `place` is formatted only for a difference: there are millions of these checks.
    pub(crate) fn expect(
        &mut self,
        check: Check,
        offset: u64,
        place: impl fmt::Display,
        expected: u64,
        found: u64,
    ) {
        if expected != found {
            self.differs(Difference::number(check, offset, &place.to_string(), expected, found));
        }
    }

    /// Adds a remark.
    pub(crate) fn remark(&mut self, remark: Remark) {
        self.report.remarks.push(remark);
    }

    /// Records the size of the problem.
    pub(crate) fn functions(&mut self, functions: usize, moved: usize) {
        self.report.functions = functions as u64;
        self.report.moved = moved as u64;
    }

    /// The finished report.
    pub(crate) fn finish(self) -> VerifyReport {
        self.report
    }
}

impl Difference {
    /// A difference in words.
    pub(crate) fn new(
        check: Check,
        offset: Option<u64>,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self {
            check,
            offset: offset.map(FileOffset),
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// A difference between two numbers.
    pub(crate) fn number(check: Check, offset: u64, place: &str, expected: u64, found: u64) -> Self {
        Self::new(check, Some(offset), place, format!("{expected:#x}"), format!("{found:#x}"))
    }
}
