//! What an image is compared with: itself with its functions moved or copied, or another build.

use layout_algos::score::Span;

use super::{OtherBuild, Placement, Touched};
use reorder_image::functions::{Function, FunctionIndex, FunctionTable};
use reorder_trace::{ExecutedBlocks, ResolvedTrace};

/// Where the code of an image is in the second image of a comparison.
#[derive(Clone, Copy, Debug)]
pub enum Comparison<'run> {
    /// In an image that was made from the first one.
    Image(&'run Placement<'run>),
    /// In another build, by function.
    Build(&'run OtherBuild),
}

impl Comparison<'_> {
    /// Whether the second image holds copies of code of the first one.
    #[must_use]
    pub fn has_copies(&self) -> bool {
        matches!(self, Self::Image(placement) if !placement.moves().copies().is_empty())
    }

    /// Where a function of the first image is; none for those that another build does not have.
    #[must_use]
    pub fn place(&self, index: FunctionIndex, function: &Function) -> Option<Span> {
        match self {
            Self::Image(placement) => {
                let start = placement.moves().map(function.start).0;
                Some(Span { start, end: start.saturating_add(function.size()) })
            }
            Self::Build(build) => build.place(index),
        }
    }
}

impl Touched {
    /// What `trace`, which is number `number` of those of `executed`, touches in both images of a comparison. Between builds,
    /// functions count whole.
    #[must_use]
    pub fn compared(
        functions: &FunctionTable<'_>,
        trace: &ResolvedTrace,
        executed: Option<(&ExecutedBlocks, usize)>,
        comparison: Option<Comparison<'_>>,
    ) -> Self {
        match comparison {
            None => Self::of(functions, trace, executed, None),
            Some(Comparison::Image(placement)) => Self::of(functions, trace, executed, Some(placement)),
            Some(Comparison::Build(build)) => Self::of_builds(functions, trace, build),
        }
    }
}
