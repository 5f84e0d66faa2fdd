//! Which functions `reorder apply` could not move, and why.

use crate::hints;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use reorder_image::pins::Pin;
use reorder_layout::opened::{OpenedImage, Stays};

/// The pinned functions in address order, or a sentence that says why none are known.
pub(super) type PinnedFunctions = Result<Vec<(FunctionIndex, Pin)>, String>;

/// Analyses the image, if it is of a kind that can be relocated.
pub(super) fn pins(image: &OpenedImage<'_>, functions: &FunctionTable<'_>) -> PinnedFunctions {
    match image.analysis() {
        Ok(Ok(analysis)) => Ok(functions
            .iter()
            .filter_map(|(index, function)| Some((index, analysis.pin_at(function.start)?)))
            .collect()),
        Ok(Err(Stays::UnknownKind)) => Err("Functions of this image are ordered by the linker. Only ELF images for x86-64 and AArch64, and \
                                            Mach-O images, are relocated when they are finished, where a function may \
                                            have to stay."
            .to_owned()),
        Ok(Err(Stays::Refused(refusal))) => {
            Err(format!("No function of this image is moved. {refusal}; {}.", hints::text(&refusal.cure)))
        }
        Err(error) => Err(format!("The image could not be analysed: {error}.")),
    }
}
