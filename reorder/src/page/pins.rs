//! Which functions `reorder apply` could not move, and why.

use crate::address::Address;
use crate::error::{Error, ErrorKind};
use crate::image::analysis::Analysis;
use crate::image::analysis::pins::Pin;
use crate::image::analysis::units::unit_containing;
use crate::image::functions::{FunctionIndex, FunctionTable};
use crate::opened::OpenedImage;

/// The pinned functions in address order, or a sentence that says why none are known.
pub(super) type PinnedFunctions = Result<Vec<(FunctionIndex, Pin)>, String>;

/// Analyses the image, if it is of a kind that can be relocated.
pub(super) fn pins(image: &OpenedImage<'_>, functions: &FunctionTable<'_>) -> PinnedFunctions {
    let Some(file) = image.relocatable() else {
        return Err(
            "Functions of this image are ordered by the linker. Only x86-64 ELF images are relocated when they are \
             finished, where a function may have to stay."
                .to_owned(),
        );
    };
    match Analysis::new(file, functions) {
        Ok(analysis) => Ok(pinned(functions, |start| {
            let unit = unit_containing(&analysis.units, start)?;
            analysis.units[unit.0 as usize].pin
        })),
        Err(Error { kind: ErrorKind::Refused(refusal), .. }) => {
            Err(format!("No function of this image is moved. {refusal}; {}.", refusal.cure))
        }
        Err(error) => Err(format!("The image could not be analysed: {error}.")),
    }
}

fn pinned(functions: &FunctionTable<'_>, pin: impl Fn(Address) -> Option<Pin>) -> Vec<(FunctionIndex, Pin)> {
    functions.iter().filter_map(|(index, function)| Some((index, pin(function.start)?))).collect()
}
