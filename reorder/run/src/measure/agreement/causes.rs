//! Why a page is only predicted, or only touched.

use std::collections::BTreeSet;

use serde::Serialize;

use super::Prediction;
use super::report::ExplainedPage;
use reorder_base::address::Address;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::is_linker_stub_section;
use reorder_image::elf::section::Section;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_system::PAGE_BYTES;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Predicted: a function that ran extends to this page, but its executed part does not.
    PartNotReached,
    /// Predicted: a function begins here that ran when the trace was recorded, and not in this run.
    NotRun,
    /// Predicted: code outside of functions that this run did not enter.
    OutsideNotEntered,
    /// Touched: code of the linker and the compiler's start-up files, which is no function.
    StartupAndStubs,
    /// Touched: headers or data that share the segment with the code.
    DataInText,
    /// Touched: code that belongs to no known function.
    CodeWithoutFunction,
    /// Touched: parts of functions that compilers split off, entered by a jump into their middle.
    SplitOffParts,
    /// Touched: functions that the trace does not have.
    FunctionsNotInTrace,
}

impl Cause {
    /// Whether no trace could predict for certain whether the page is touched: it holds code that is not a function, or is not entered
    /// at its start.
    #[must_use]
    pub fn is_untraced_code(self) -> bool {
        matches!(
            self,
            Self::OutsideNotEntered
                | Self::StartupAndStubs
                | Self::DataInText
                | Self::CodeWithoutFunction
                | Self::SplitOffParts
        )
    }

    /// For people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::PartNotReached => "part of a function that was not reached",
            Self::NotRun => "ran in the trace, not in this run",
            Self::OutsideNotEntered => "start-up code or stubs that this run did not enter",
            Self::StartupAndStubs => "linker stubs and start-up code",
            Self::DataInText => "data next to the code",
            Self::CodeWithoutFunction => "code of no known function",
            Self::SplitOffParts => "split-off parts, entered in their middle",
            Self::FunctionsNotInTrace => "functions that the trace does not have",
        }
    }
}

/// Explains a page that was predicted and not touched. `running` are the functions that predicted it; if there are none, code
/// outside of functions did.
pub(super) fn not_touched(
    file: &ElfFile<'_>,
    prediction: &Prediction<'_>,
    page: Address,
    running: &[FunctionIndex],
) -> ExplainedPage {
    if running.is_empty() {
        let code = sections_on(file, page).filter(|section| section.is_executable());
        let holds = code.map(|section| section.display_name().into_owned()).collect();
        return ExplainedPage { page, cause: Cause::OutsideNotEntered, holds };
    }
    let functions = prediction.functions;
    let begins_here = |index: &&FunctionIndex| prediction.is_in_parts || functions.get(**index).start >= page;
    let beginning: Vec<&FunctionIndex> = running.iter().filter(begins_here).collect();
    let (cause, shown) = match beginning.is_empty() {
        true => (Cause::PartNotReached, running.iter().collect()),
        false => (Cause::NotRun, beginning),
    };
    let names = shown.into_iter().map(|&index| functions.display_name(index)).collect();
    ExplainedPage { page, cause, holds: names }
}

/// Explains a page that was touched and not predicted; `split_parts` are functions that can run unseen.
pub(super) fn not_predicted(
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    page: Address,
    split_parts: &BTreeSet<FunctionIndex>,
) -> ExplainedPage {
    let end = page.plus(PAGE_BYTES);
    let sections: Vec<_> = sections_on(file, page).collect();
    let of_sections = |cause, is_wanted: &dyn Fn(&[u8], bool) -> bool| {
        let wanted = sections.iter().filter(|section| is_wanted(section.name, section.is_executable()));
        let holds: Vec<String> = wanted.map(|section| section.display_name().into_owned()).collect();
        (!holds.is_empty()).then_some(ExplainedPage { page, cause, holds })
    };
    let is_startup = |name: &[u8], _| is_linker_stub_section(name) || name == b".init" || name == b".fini";
    let on_page: Vec<FunctionIndex> = functions
        .iter()
        .filter(|(_, function)| function.start < end && function.end > page)
        .map(|(index, _)| index)
        .collect();
    let of_functions = |cause, is_wanted: &dyn Fn(&FunctionIndex) -> bool| {
        let wanted = on_page.iter().filter(|index| is_wanted(index));
        let holds: Vec<String> = wanted.map(|&index| functions.display_name(index)).collect();
        (!holds.is_empty()).then_some(ExplainedPage { page, cause, holds })
    };
    of_sections(Cause::StartupAndStubs, &is_startup)
        .or_else(|| of_sections(Cause::DataInText, &|_, is_executable| !is_executable))
        .or_else(|| of_functions(Cause::SplitOffParts, &|index| split_parts.contains(index)))
        .or_else(|| of_functions(Cause::FunctionsNotInTrace, &|_| true))
        .or_else(|| of_sections(Cause::CodeWithoutFunction, &|_, _| true))
        .unwrap_or(ExplainedPage { page, cause: Cause::DataInText, holds: vec!["file headers".to_owned()] })
}

/// The loaded sections of which some part is on the page at `page`.
fn sections_on<'file, 'data>(
    file: &'file ElfFile<'data>,
    page: Address,
) -> impl Iterator<Item = &'file Section<'data>> {
    let end = page.plus(PAGE_BYTES);
    let is_on_page =
        move |section: &&Section<'_>| section.is_loaded() && section.address < end && section.end() > page;
    file.sections.iter().filter(is_on_page)
}
