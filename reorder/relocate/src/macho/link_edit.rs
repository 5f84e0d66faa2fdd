//! `__LINKEDIT` of the output: tables that hold addresses are rewritten, all others are copied.
//!
//! Parts keep their order and what lies between them. Each keeps the remainder of its size by eight, so that everything
//! after it stays aligned as the linker had it; only the alignment of a signature is computed again.
//! Source: what dyld and Apple's tools check: parts in order, aligned, apart and inside the segment.

use super::signature::{self, Signer};
use super::{fields, symbols};
use crate::address_map::AddressMap;
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::macho::export_trie::{self, ExportValue};
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::load_command::{LinkEditPart, LinkEditRange};
use reorder_image::macho::section::Segment;
use reorder_image::macho::{data_in_code, function_starts};

/// Replaces `__LINKEDIT` of `output`, which is a copy of the image, and signs it with `signer` if the image was signed.
///
/// # Errors
/// Malformed tables; parts that overlap or lie outside of `__LINKEDIT`; a segment that cannot grow.
pub(super) fn rebuild(
    file: &MachOFile<'_>,
    map: &AddressMap,
    signer: Option<&Signer<'_>>,
    mut output: Vec<u8>,
) -> Result<Vec<u8>> {
    let Some(segment) = file.segment(b"__LINKEDIT") else {
        return Err(Error::malformed(0, "the image has no segment __LINKEDIT"));
    };
    output.truncate(segment.offset);
    let mut copied = segment.offset;
    let mut empty = file.empty_link_edit.iter().peekable();
    for range in file.link_edit.iter().filter(|range| range.part != LinkEditPart::Signature) {
        let Some(gap) = file.bytes.get(copied..range.offset) else {
            return Err(Error::malformed(range.offset_field as u64, "two parts of __LINKEDIT overlap"));
        };
        output.extend_from_slice(gap);
        while let Some(part) = empty.next_if(|part| part.offset <= range.offset) {
            let start = (output.len() + part.offset).checked_sub(range.offset);
            fields::write_word(&mut output, part.offset_field, start.unwrap_or(part.offset))?;
        }
        copied = range.offset + range.size;
        let new = new_part(file, map, range)?;
        let old = &file.bytes[range.offset..copied];
        let start = output.len();
        output.extend_from_slice(new.as_deref().unwrap_or(old));
        fields::write_word(&mut output, range.offset_field, start)?;
        if let Some(new) = new.filter(|new| new.len() != old.len()) {
            fields::write_word(&mut output, range.size_field, new.len())?;
        }
    }
    for part in empty {
        let start = output.len().saturating_add(part.offset).checked_sub(copied);
        fields::write_word(&mut output, part.offset_field, start.unwrap_or(part.offset))?;
    }
    match (signer, file.link_edit_range(LinkEditPart::Signature)) {
        (Some(signer), Some(range)) => {
            output.resize(output.len().next_multiple_of(signature::ALIGNMENT), 0);
            let limit = output.len();
            fields::write_word(&mut output, range.offset_field, limit)?;
            // A developer's signature mostly took more room than is needed: with padding, the file keeps its size.
            let least_end = limit + signer.size(limit);
            let end = match range.offset + range.size {
                old_end if old_end >= least_end => old_end,
                _ => least_end.next_multiple_of(signature::ALIGNMENT),
            };
            fields::write_word(&mut output, range.size_field, end - limit)?;
            grow(file, segment, end, &mut output)?;
            let signature = signer.sign(&output);
            output.extend_from_slice(&signature);
            output.resize(end, 0);
        }
        _ => {
            let Some(rest) = file.bytes.get(copied..segment.offset + segment.file_size) else {
                return Err(Error::malformed(segment.offset as u64, "a part lies after __LINKEDIT"));
            };
            output.extend_from_slice(rest);
            let end = output.len();
            grow(file, segment, end, &mut output)?;
        }
    }
    Ok(output)
}

/// The segment's new sizes. It may grow, since no segment follows it in memory.
fn grow(file: &MachOFile<'_>, segment: &Segment<'_>, end: usize, output: &mut [u8]) -> Result<()> {
    const MEMORY_SIZE: usize = 32;
    const FILE_SIZE: usize = 48;
    let page = match file.processor {
        Processor::Aarch64 => 0x4000,
        Processor::X86_64 | Processor::Other => 0x1000,
    };
    let file_size = (end - segment.offset) as u64;
    let pages = file_size.next_multiple_of(page);
    // lld does not round: if the number of pages is the same, its size is right.
    let is_enough =
        file_size <= segment.memory_size && segment.memory_size.checked_next_multiple_of(page) == Some(pages);
    let memory_size = if is_enough { segment.memory_size } else { pages };
    let new_end = segment.address.0.checked_add(memory_size);
    let mut following = file.segments.iter().filter(|other| other.address > segment.address);
    if new_end.is_none_or(|end| following.any(|other| other.address.0 < end)) {
        return Err(Refusal::new(
            RefusalCode::MachOTrailingBytes,
            "the segment __LINKEDIT cannot grow, since another one follows it",
            "link the image so that __LINKEDIT is the last segment, as ld and lld do",
        )
        .at(segment.address)
        .into());
    }
    fields::write_long(output, segment.command_offset + MEMORY_SIZE, memory_size)?;
    fields::write_long(output, segment.command_offset + FILE_SIZE, file_size)
}

/// The part's new bytes; `None` if it stays as it is.
fn new_part(file: &MachOFile<'_>, map: &AddressMap, range: &LinkEditRange) -> Result<Option<Vec<u8>>> {
    let new = match range.part {
        LinkEditPart::Exports => move_exports(file, map)?,
        LinkEditPart::FunctionStarts => move_function_starts(file, map)?,
        LinkEditPart::DataInCode => move_data_in_code(file, map)?,
        LinkEditPart::Symbols => Some(symbols::move_symbols(file, map)?),
        _ => None,
    };
    Ok(new.map(|mut bytes| {
        while bytes.len() % 8 != range.size % 8 {
            bytes.push(0);
        }
        bytes
    }))
}

/// An image offset after the move.
fn move_offset(file: &MachOFile<'_>, map: &AddressMap, offset: &mut u64) -> bool {
    let old = std::mem::replace(offset, map.map(file.address_of(*offset)).0.wrapping_sub(file.base().0));
    old != *offset
}

fn move_exports(file: &MachOFile<'_>, map: &AddressMap) -> Result<Option<Vec<u8>>> {
    let mut exports = export_trie::parse(file.link_edit_bytes(LinkEditPart::Exports))?;
    let mut has_changed = false;
    for export in &mut exports {
        has_changed |= match &mut export.value {
            ExportValue::Offset(offset) => move_offset(file, map, offset),
            ExportValue::StubAndResolver { stub, resolver } => {
                move_offset(file, map, stub) | move_offset(file, map, resolver)
            }
            ExportValue::Absolute(_) | ExportValue::Reexport(_) => false,
        };
    }
    Ok(has_changed.then(|| export_trie::encode(&exports)))
}

fn move_function_starts(file: &MachOFile<'_>, map: &AddressMap) -> Result<Option<Vec<u8>>> {
    let old = function_starts::function_starts(file)?;
    let mut new: Vec<NewAddress> = old.iter().map(|start| map.map(*start)).collect();
    new.sort_unstable();
    // If the starts are the same, the linker's bytes are right in any encoding.
    let is_same = old.iter().zip(&new).all(|(old, new)| old.0 == new.0);
    Ok((!is_same).then(|| function_starts::encode(file.base(), &new)))
}

fn move_data_in_code(file: &MachOFile<'_>, map: &AddressMap) -> Result<Option<Vec<u8>>> {
    let old = data_in_code::read(file)?;
    let mut new = old.clone();
    new.iter_mut().for_each(|range| range.start = Address(map.map(range.start).0));
    if new == old {
        return Ok(None);
    }
    new.sort_by_key(|range| range.start);
    let mut bytes = Vec::with_capacity(new.len() * 8);
    for range in new {
        let offset = u32::try_from(range.start.distance_from(file.base()))
            .map_err(|_| Error::malformed(0, "a range of data in code lies before the headers"))?;
        bytes.extend(offset.to_le_bytes());
        bytes.extend(range.length.to_le_bytes());
        bytes.extend(range.kind.to_le_bytes());
    }
    Ok(Some(bytes))
}
