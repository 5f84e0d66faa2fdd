//! Runtimes that keep code addresses in tables of their own: OCaml and Haskell (GHC).
//!
//! Programs hold the name of an environment variable that only their runtime reads. Libraries without the runtime, and
//! code built by other compilers of this kind, are recognised by their data: pointers to return addresses, by which a
//! garbage collector finds the contents of a frame, or pointers to functions that have a description before their first
//! instruction. All of these signs survive stripping.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use memchr::memmem;

use super::atoms::Atoms;
use crate::macho::file::MachOFile;
use crate::macho::reference::DataReference;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};

/// Environment variables that only these runtimes read.
const VARIABLES: [(&str, &str); 2] = [("OCAMLRUNPARAM", "OCaml"), ("GHCRTS", "Haskell (GHC)")];
/// Least number of pointers to return addresses. Few labels of computed jumps follow calls.
const MIN_RETURN_ADDRESSES: usize = 16;
/// Least number of functions with a description before them. In C code two numbers in a hundred may look like one.
const MIN_DESCRIBED: usize = 32;
/// The largest number of GHC's kinds of closures, which begin at 1.
const MAX_CLOSURE_KIND: u32 = 64;

/// Refuses images of such a runtime. `slots` are the pointers that the loader rebases.
///
/// # Errors
/// M6.
pub(super) fn refuse_runtimes(file: &MachOFile<'_>, atoms: &Atoms, slots: &[DataReference]) -> Result<()> {
    let found = by_variable(file)
        .or_else(|| Some(("a garbage-collected language (OCaml)", by_return_addresses(file, atoms, slots)?)))
        .or_else(|| Some(("Haskell (GHC)", by_descriptions(file, slots)?)));
    match found {
        None => Ok(()),
        Some((runtime, place)) => Err(Refusal::new(
            RefusalCode::MachORuntimeTables,
            format!("the image is of {runtime}, whose runtime keeps code addresses in tables of its own"),
            "use the order options of its own compiler, if it has any",
        )
        .at(place)
        .into()),
    }
}

fn by_variable(file: &MachOFile<'_>) -> Option<(&'static str, Address)> {
    let literals = file.sections.iter().filter(|section| section.has_bytes() && !section.is_code());
    literals.into_iter().find_map(|section| {
        let bytes = file.section_bytes(section);
        VARIABLES.iter().find_map(|(name, runtime)| {
            let is_whole = |at: &usize| {
                (*at == 0 || bytes[at - 1] == 0) && bytes.get(at + name.len()).is_none_or(|byte| *byte == 0)
            };
            let at = memmem::find_iter(bytes, name).find(is_whole)?;
            Some((*runtime, section.address.plus(at as u64)))
        })
    })
}

/// The first of many pointers to the end of a call, if most pointers to the inside of functions are of this kind.
fn by_return_addresses(file: &MachOFile<'_>, atoms: &Atoms, slots: &[DataReference]) -> Option<Address> {
    let text = file.text();
    let (range, bytes) = (text.range(), file.section_bytes(text));
    let inside: Vec<&DataReference> =
        slots.iter().filter(|slot| range.contains(&slot.target) && !atoms.is_start(slot.target)).collect();
    let is_returned_to = |slot: &&&DataReference| {
        follows_call(file.processor, bytes, slot.target.distance_from(text.address) as usize)
    };
    let returns = inside.iter().filter(is_returned_to).count();
    let is_collected = returns >= MIN_RETURN_ADDRESSES && returns * 2 > inside.len();
    inside.iter().find(|slot| is_collected && is_returned_to(slot)).map(|slot| slot.place)
}

/// Whether the instruction that ends at `end` is a call.
fn follows_call(processor: Processor, code: &[u8], end: usize) -> bool {
    const MAX_CALL_LENGTH: usize = 7;
    match processor {
        Processor::Aarch64 => {
            let word = end.checked_sub(4).and_then(|start| code.get(start..)?.first_chunk());
            // `BL` and `BLR`.
            word.map(|word| u32::from_le_bytes(*word))
                .is_some_and(|word| word >> 26 == 0x25 || word & 0xffff_fc1f == 0xd63f_0000)
        }
        Processor::X86_64 | Processor::Other => (2..=MAX_CALL_LENGTH).any(|length| {
            let bytes = end.checked_sub(length).and_then(|start| code.get(start..end));
            bytes.is_some_and(|bytes| {
                let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
                instruction.len() == length
                    && matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
            })
        }),
    }
}

/// The first pointer, if most functions that data points to have a description before them: layout, kind, and references.
/// Source: `StgInfoTable_` in GHC's `rts/storage/InfoTables.h`.
fn by_descriptions(file: &MachOFile<'_>, slots: &[DataReference]) -> Option<Address> {
    const KIND: u64 = 8;
    let range = file.text().range();
    let in_text = || slots.iter().filter(|slot| range.contains(&slot.target));
    let targets: BTreeSet<Address> = in_text().map(|slot| slot.target).collect();
    let kind_of =
        |target: Address| Some(Address(target.0.checked_sub(KIND)?)).filter(|at| range.contains(at));
    let is_described = |target: &Address| {
        let kind = kind_of(*target).and_then(|at| file.word_at(at));
        kind.is_some_and(|kind| (1..=MAX_CLOSURE_KIND).contains(&kind))
    };
    let described = targets.iter().filter(|target| is_described(target)).count();
    let is_haskell = described >= MIN_DESCRIBED && described * 2 > targets.len();
    in_text().find(|slot| is_haskell && is_described(&slot.target)).map(|slot| slot.place)
}
