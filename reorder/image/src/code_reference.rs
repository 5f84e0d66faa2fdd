//! How instructions hold addresses: what an analysis lists and a relocator rewrites.
//!
//! A unit moves rigidly, and afterwards every reference whose place or target moved is encoded anew. A reference whose place
//! and target are in one unit and whose form is a distance needs no entry.

use reorder_base::address::Address;

/// How an instruction holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeForm {
    /// arm64 `B` and `BL`: 26 bits, in words, from the instruction.
    Branch26,
    /// arm64 `ADR`: 21 bits, in bytes, from the instruction.
    Adr,
    /// arm64 `ADRP`: 21 bits, in pages of 4 KiB, from the instruction's page. Only the target's page counts.
    Page,
    /// arm64 `ADD` with an immediate, or load or store with one scaled by `1 << scale`: the target's lowest 12 bits.
    PageOffset {
        /// The logarithm of what the field counts in: 0 for `ADD`.
        scale: u8,
    },
    /// arm64 `ADR` that the linker made of `ADRP` and `ADD`; becomes the pair again when the target is too far: the `ADRP` comes
    /// first.
    RelaxedAdr {
        /// The `NOP`, in instructions after the `ADR` or, if negative, before it.
        nop: i8,
    },
    /// arm64 load of a word at a distance, 19 bits, in words.
    LoadLiteral,
    /// The same, made by the linker of `ADRP` and a load; becomes the pair again when the target is too far. Its register
    /// is one for integers.
    RelaxedLoad {
        /// The `NOP` that was the `ADRP`, as in [`CodeForm::RelaxedAdr`].
        nop: i8,
    },
    /// x86-64: 32 bits, from the end of the instruction, which is so many bytes after the field's start. The reference's
    /// place is the field.
    Relative32 {
        /// Bytes from the field to the end of the instruction.
        end: u8,
    },
}

/// A field in the instructions of `__text` or of another section of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeReference {
    /// The instruction on arm64, the field on x86-64.
    pub place: Address,
    /// What it refers to.
    pub target: Address,
    /// How.
    pub form: CodeForm,
}

/// The references in the instructions of all atoms, packed: large images have millions.
#[derive(Clone, Debug, Default)]
pub struct AtomReferences {
    base: Address,
    by_atom: Vec<Box<[PackedReference]>>,
}

/// A reference by the distance of its place from the atom's start and the image offset of its target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedReference {
    place: u32,
    target: u32,
    form: CodeForm,
}

impl CodeReference {
    /// Of an atom at `start` in an image at `base`; `None` when the target lies further after `base` than images reach.
    pub(crate) fn pack(&self, start: Address, base: Address) -> Option<PackedReference> {
        let place = u32::try_from(self.place.distance_from(start)).ok()?;
        let target = u32::try_from(self.target.distance_from(base)).ok()?;
        Some(PackedReference { place, target, form: self.form })
    }
}

impl AtomReferences {
    /// `by_atom` has the references of each atom, packed for an image at `base`.
    pub(crate) fn new(base: Address, by_atom: Vec<Box<[PackedReference]>>) -> Self {
        Self { base, by_atom }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.by_atom.iter().map(|references| references.len()).sum()
    }

    /// Those of the atom with this number, which begins at `start`.
    pub fn of_atom(&self, atom: usize, start: Address) -> impl Iterator<Item = CodeReference> + '_ {
        self.by_atom[atom].iter().map(move |packed| CodeReference {
            place: start.plus(u64::from(packed.place)),
            target: self.base.plus(u64::from(packed.target)),
            form: packed.form,
        })
    }

    /// Whether the atom with this number has any.
    #[must_use]
    pub(crate) fn has_any(&self, atom: usize) -> bool {
        !self.by_atom[atom].is_empty()
    }

    /// Forgets the references of an atom, which begins at `start`, for which this does not hold.
    pub(crate) fn retain(&mut self, atom: usize, start: Address, holds: impl Fn(&CodeReference) -> bool) {
        let kept: Vec<bool> = self.of_atom(atom, start).map(|reference| holds(&reference)).collect();
        let packed = self.by_atom[atom].iter().zip(kept);
        self.by_atom[atom] = packed.filter(|(_, is_kept)| *is_kept).map(|(packed, _)| *packed).collect();
    }

    pub(crate) fn replace(&mut self, atom: usize, references: Box<[PackedReference]>) {
        self.by_atom[atom] = references;
    }
}
