//! What the code of each function refers to.
//!
//! Takes functions, regions and pointers; gives [`CodeReferences`]: for each function, in the order of its
//! instructions, functions by index and data by address. Calls through the linker's stubs and loads of the loader's
//! slots count as references to what the slot holds.

use layout_algos::problem::ReferenceKind;
use rayon::prelude::*;

use super::bodies::{Body, body};
use super::operand::{Operand, Usage};
use super::pointers::Pointers;
use super::regions::{Region, Regions};
use super::x86_64::{stub_slot, visit_operands};
use crate::functions::{FunctionIndex, FunctionTable};
use reorder_base::address::Address;
use reorder_base::error::Result;

/// What an address means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Function(FunctionIndex),
    Data(Address),
}

/// One reference of a function; four bytes and a kind, as there are millions.
#[derive(Clone, Copy)]
struct Compact {
    /// A function's index, or the position of a data address in the chunk.
    value: u32,
    is_data: bool,
    kind: ReferenceKind,
}

/// The references of a run of functions.
#[derive(Default)]
struct Chunk {
    references: Vec<Compact>,
    /// Where each function's references end.
    ends: Vec<usize>,
    data: Vec<Address>,
}

/// The references of all functions.
pub(super) struct CodeReferences(Vec<Chunk>);

/// Functions per task.
const CHUNK: usize = 256;

impl CodeReferences {
    pub(super) fn collect(functions: &FunctionTable<'_>, regions: &Regions<'_>, pointers: &Pointers) -> Self {
        let resolver = Resolver { functions, regions, pointers };
        let chunks = (0..functions.len().div_ceil(CHUNK)).into_par_iter().map(|chunk| {
            let mut found = Chunk::default();
            for index in chunk * CHUNK..functions.len().min((chunk + 1) * CHUNK) {
                resolver.collect_function(FunctionIndex(index as u32), &mut found);
            }
            found
        });
        Self(chunks.collect())
    }

    /// All data addresses that code refers to, unordered.
    pub(super) fn data_addresses(&self) -> impl Iterator<Item = Address> {
        self.0.iter().flat_map(|chunk| chunk.data.iter().copied())
    }

    /// Calls `visit` with each function's references, in the order of functions.
    ///
    /// # Errors
    /// The first error of `visit`.
    pub(super) fn for_each_function(
        &self,
        mut visit: impl FnMut(&mut dyn Iterator<Item = (Destination, ReferenceKind)>) -> Result<()>,
    ) -> Result<()> {
        for chunk in &self.0 {
            let mut start = 0;
            for &end in &chunk.ends {
                let references = chunk.references[start..end].iter();
                visit(&mut references.map(|reference| {
                    let destination = if reference.is_data {
                        Destination::Data(chunk.data[reference.value as usize])
                    } else {
                        Destination::Function(FunctionIndex(reference.value))
                    };
                    (destination, reference.kind)
                }))?;
                start = end;
            }
        }
        Ok(())
    }
}

/// Resolves addresses.
#[derive(Clone, Copy)]
struct Resolver<'image, 'data> {
    functions: &'image FunctionTable<'data>,
    regions: &'image Regions<'data>,
    pointers: &'image Pointers,
}

impl Resolver<'_, '_> {
    fn collect_function(&self, index: FunctionIndex, chunk: &mut Chunk) {
        let Body { start, bytes, overlaps_next } = body(self.regions, self.functions, index);
        let absolute = self.regions.is_fixed.then_some(&self.regions.image);
        let Chunk { references, data, .. } = &mut *chunk;
        visit_operands(bytes, start, absolute, |operand| {
            let Some((destination, kind)) = self.resolve(&operand) else { return };
            references.push(match destination {
                Destination::Function(function) => Compact { value: function.0, is_data: false, kind },
                Destination::Data(address) => {
                    data.push(address);
                    Compact { value: (data.len() - 1) as u32, is_data: true, kind }
                }
            });
        });
        if overlaps_next {
            references.push(Compact { value: index.0 + 1, is_data: false, kind: ReferenceKind::Jump });
        }
        chunk.ends.push(chunk.references.len());
    }

    fn resolve(&self, operand: &Operand) -> Option<(Destination, ReferenceKind)> {
        let target = operand.target;
        match self.regions.find(target)? {
            Region::Code => {
                let function = self.functions.containing(target)?;
                let kind = match operand.usage {
                    Usage::Call => ReferenceKind::Call,
                    Usage::Jump => ReferenceKind::Jump,
                    _ => ReferenceKind::CodeAddress,
                };
                Some((Destination::Function(function), kind))
            }
            Region::Stubs => {
                /// The longest stub up to its jump.
                const STUB: u64 = 16;
                let bytes = self.regions.bytes(target, target.plus(STUB));
                self.through_slot(stub_slot(bytes, target)?, operand.usage)
            }
            Region::Slots => self.through_slot(target, operand.usage),
            Region::Data => Some((Destination::Data(target), ReferenceKind::DataAddress)),
        }
    }

    /// The address that the loader puts into the slot, if it lies in this image.
    fn through_slot(&self, slot: Address, usage: Usage) -> Option<(Destination, ReferenceKind)> {
        let target = self.pointers.at(slot)?;
        match self.regions.find(target)? {
            Region::Code => {
                let function = self.functions.containing(target)?;
                let kind = match usage {
                    Usage::Call | Usage::CallThrough => ReferenceKind::Call,
                    Usage::Jump | Usage::JumpThrough => ReferenceKind::Jump,
                    Usage::Address | Usage::Memory => ReferenceKind::CodeAddress,
                };
                Some((Destination::Function(function), kind))
            }
            Region::Data => Some((Destination::Data(target), ReferenceKind::DataAddress)),
            Region::Stubs | Region::Slots => None,
        }
    }
}
