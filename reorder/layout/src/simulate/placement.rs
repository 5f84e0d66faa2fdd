//! Where code of the old image runs in the new one.
//!
//! Without copies that is where it went. With copies, control decides: see [`CopiedControl`].

use std::ops::Range;

use layout_algos::score::Span;

use super::control::CopiedControl;
use super::touched::{block_span, placed};
use crate::opened::OpenedImage;
use reorder_base::address::NewAddress;
use reorder_base::error::Result;
use reorder_image::elf::file::ElfFile;
use reorder_image::functions::FunctionTable;
use reorder_trace::ExecutedBlock;
use reorder_verify::AddressMoves;

/// The new image of a comparison.
#[derive(Clone, Debug)]
pub struct Placement<'image> {
    moves: &'image AddressMoves,
    control: Option<CopiedControl<'image>>,
}

impl<'image> Placement<'image> {
    /// Functions that moved, and no copies.
    #[must_use]
    pub fn moved(moves: &'image AddressMoves) -> Self {
        Self { moves, control: None }
    }

    /// `moves` leads from `old` to the image in `new`.
    ///
    /// # Errors
    /// Damaged tables of the new image.
    pub fn of_image(
        old: &'image OpenedImage<'image>,
        new: &'image [u8],
        moves: &'image AddressMoves,
    ) -> Result<Self> {
        match old {
            OpenedImage::Elf(old, _) => Self::of_elf(old, new, moves),
            OpenedImage::MachO(_) => Ok(Self::moved(moves)),
        }
    }

    /// The same of ELF images.
    ///
    /// # Errors
    /// Damaged tables of the new image.
    pub fn of_elf(
        old: &'image ElfFile<'image>,
        new: &'image [u8],
        moves: &'image AddressMoves,
    ) -> Result<Self> {
        let control = match moves.copies().is_empty() {
            true => None,
            false => Some(CopiedControl::new(old, ElfFile::parse_any_processor(new)?, moves)?),
        };
        Ok(Self { moves, control })
    }

    /// The map.
    #[must_use]
    pub fn moves(&self) -> &'image AddressMoves {
        self.moves
    }

    /// The addresses from the first copy to the last; none without copies.
    pub(super) fn copies(&self) -> Range<NewAddress> {
        self.control.as_ref().map_or(NewAddress(0)..NewAddress(0), CopiedControl::copies)
    }

    /// Where each of the `blocks` that one run executed, in order of first execution, runs.
    #[must_use]
    pub(crate) fn of_blocks(
        &self,
        functions: &FunctionTable<'_>,
        blocks: &[ExecutedBlock],
    ) -> Vec<Vec<Span>> {
        let spans: Vec<Span> = blocks.iter().map(|block| block_span(functions, block)).collect();
        match &self.control {
            Some(control) => control.places(functions, blocks, &spans),
            None => self.of_spans(&spans),
        }
    }

    /// Where code of functions runs of which no blocks are known: in its copies, as far as it has any.
    #[must_use]
    pub(crate) fn of_spans(&self, spans: &[Span]) -> Vec<Vec<Span>> {
        spans.iter().map(|span| placed(*span, self.moves).collect()).collect()
    }
}
