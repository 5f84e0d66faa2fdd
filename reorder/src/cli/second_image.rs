//! The second image of a comparison: one that `reorder apply` made, or another build.

use std::path::Path;

use crate::cli::scenarios_input::{NewImage, ScenariosInput};
use reorder_base::error::Result;
use reorder_image::functions::FunctionTable;
use reorder_layout::opened::OpenedImage;
use reorder_layout::simulate::{Comparison, OtherBuild, Placement};
use reorder_system::mapped::map_image;
use reorder_trace::ResolvedTraces;

/// What NEW is.
pub(super) enum SecondImage {
    /// The image that the traces belong to, with its functions moved or copied.
    Made(Box<NewImage>),
    /// Another build of it.
    Build(OtherBuild),
}

impl SecondImage {
    /// The image at `new`, compared with the one at `path` that is in `bytes` and has these functions and traces.
    ///
    /// # Errors
    /// An unreadable file at `new`, or one that is neither made from the image nor another build: most functions that ran are not
    /// in it.
    pub(super) fn open(
        input: &ScenariosInput,
        (path, bytes): (&Path, &[u8]),
        functions: &FunctionTable<'_>,
        traces: &ResolvedTraces,
        new: Option<&Path>,
    ) -> Result<Option<Self>> {
        let Some(new) = new else { return Ok(None) };
        let error = match input.new_image(path, bytes, Some(new)) {
            Ok(made) => return Ok(made.map(|made| Self::Made(Box::new(made)))),
            Err(error) => error,
        };
        let new_bytes = map_image(new)?;
        let image = input.open(new, &new_bytes)?;
        let build = OtherBuild::new(functions, &image.functions(), image.text());
        let pairs = build.pairs(&traces.traces);
        if pairs.missing * 2 > pairs.functions {
            return Err(error);
        }
        Ok(Some(Self::Build(build)))
    }

    /// Where code of `old`, the first image, runs in this one; none for another build, which is compared by its functions.
    ///
    /// # Errors
    /// Damaged tables of the new image.
    pub(super) fn placement<'image>(
        &'image self,
        old: &'image OpenedImage<'image>,
    ) -> Result<Option<Placement<'image>>> {
        match self {
            Self::Made(made) => made.placement(old).map(Some),
            Self::Build(_) => Ok(None),
        }
    }

    /// The comparison, with the placement of [`Self::placement`].
    pub(super) fn comparison<'run>(
        &'run self,
        placement: Option<&'run Placement<'run>>,
    ) -> Option<Comparison<'run>> {
        match self {
            Self::Made(_) => placement.map(Comparison::Image),
            Self::Build(build) => Some(Comparison::Build(build)),
        }
    }
}
