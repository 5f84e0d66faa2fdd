//! Stored code addresses of a program at a fixed address. Where relocations that the linker kept list these constants, the
//! fields must follow the map. Where there is no such list, the move is sound only if no constant can be the address of a
//! function that moved, or the address right after one.

use goblin::elf::header::ET_EXEC;
use goblin::elf::section_header::SHT_PROGBITS;
use iced_x86::{Decoder, DecoderOptions, OpKind};
use rayon::prelude::*;

use super::pair::{ImagePair, Ledger};
use crate::aarch64;
use crate::bytes::{range, u64_at};
use crate::elf::view::SectionView;
use crate::moves::AddressMoves;
use crate::processor::Processor;
use crate::report::{Check, Difference};
use reorder_base::address::{Address, NewAddress};

/// Checks all stored addresses, and all other data and instructions of the old image. Images at a variable address are
/// skipped.
pub(crate) fn check_absolute_addresses(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    if pair.old.header.e_type != ET_EXEC || pair.moves.moved() == 0 {
        return;
    }
    check_fields(pair, ledger);
    check_contradictions(pair, ledger);
    let mut constants: Vec<(Address, Address)> = Vec::new();
    let mut looked_at = 0;
    let unlisted = pair.old.sections.iter().filter(|section| !pair.absolute.lists(section));
    for section in unlisted.filter(|section| section.is_loaded()) {
        if section.is_code() {
            looked_at += section.bytes.len();
            match pair.old.processor {
                Processor::Aarch64 => {
                    let found = aarch64::constants(section.bytes, section.address);
                    constants.extend(found.map(addresses).filter(|&(_, value)| is_moved(pair, value)));
                }
                Processor::X86_64 => {
                    let found = section_constants(section, pair.moves).map(addresses);
                    constants.extend(found.filter(|&(_, value)| is_moved(pair, value)));
                }
            }
        } else if section.kind == SHT_PROGBITS && !section.name.starts_with(b".eh_frame") {
            looked_at += section.bytes.len();
            let slots = followed_slots(pair, section, ledger);
            let hits = (0..section.bytes.len()).into_par_iter().with_min_len(1 << 16);
            let hits = hits.filter_map(|position| {
                let place = Address(section.address + position as u64);
                data_constant(section.bytes, position, place.0)
                    .map(Address)
                    .filter(|&value| is_moved(pair, value) && !overlaps(&slots, place))
                    .map(|value| (place, value))
            });
            constants.extend(hits.collect::<Vec<_>>());
        }
    }
    ledger.findings.checked(Check::AbsoluteAddresses, "bytes", looked_at);
    for (place, value) in constants {
        ledger.findings.differs(Difference::new(
            Check::AbsoluteAddresses,
            None,
            format!("the constant at {place}"),
            "no address of a function that moved",
            value.to_string(),
        ));
    }
}

/// Whether `value` is the address of a byte of a function that moved, or the address right after one.
fn is_moved(pair: ImagePair<'_>, value: Address) -> bool {
    let moved = |address: Address| pair.moves.containing(address).is_some_and(|range| range.is_moved());
    moved(value) || value.0.checked_sub(1).map(Address).is_some_and(moved)
}

/// Listed addresses in data follow the map. Those in functions are compared with their instructions; code outside of
/// functions is never rewritten, so it must not hold the address of a function that moved.
fn check_fields(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    for field in pair.absolute.all() {
        ledger.findings.found(pair.lost_alignment(Check::AbsoluteAddresses, field.value));
        let Some(section) = pair.old.section_at(field.place.0) else { continue };
        let offset = section.offset + (field.place.0 - section.address);
        let is_in_function = pair.moves.containing(field.place).is_some();
        // Operands are compared with their instructions; AArch64 has no operands that hold a whole address.
        if section.is_code() && is_in_function && pair.old.processor == Processor::X86_64 {
            continue;
        }
        let read =
            |place| field.read(section_bytes(pair, section, place, field.width as u64)?).map(NewAddress);
        let Some(found) = read(pair.mapped(field.place)) else { continue };
        if !section.is_code() {
            ledger.claims.add(offset, field.width as u64);
        }
        // A constant before a function, such as the last one of the function before it, may have moved with it.
        let is_carried = || {
            let found = pair.carried(field.place).filter(|_| section.is_code()).and_then(read);
            found.is_some_and(|found| pair.holds_followed(field, found))
        };
        if !pair.holds_followed(field, found) && !is_carried() {
            let name = format!("the address stored at {}", field.place);
            let expected = pair.mapped(field.value);
            ledger.findings.differs(Difference::number(
                Check::AbsoluteAddresses,
                offset,
                &name,
                expected.0,
                found.0,
            ));
        }
    }
    ledger.findings.checked(Check::AbsoluteAddresses, "listed addresses", pair.absolute.all().len());
}

/// The bytes at `place` in the new image of a section that kept its place in memory and in the file.
fn section_bytes<'a>(
    pair: ImagePair<'a>,
    section: &SectionView<'_>,
    place: NewAddress,
    size: u64,
) -> Option<&'a [u8]> {
    let within =
        place.0.checked_sub(section.address).filter(|within| *within < section.bytes.len() as u64)?;
    range(pair.new.bytes, section.offset.checked_add(within)?, size)
}

/// An entry that contradicts the bytes is harmless as long as what the bytes may refer to, such as a stub, did not move.
fn check_contradictions(pair: ImagePair<'_>, ledger: &mut Ledger<'_>) {
    for wrong in pair.absolute.contradictions.iter().filter(|wrong| is_moved(pair, Address(wrong.stored))) {
        ledger.findings.differs(Difference::new(
            Check::AbsoluteAddresses,
            None,
            format!("the kept relocation for {}", wrong.place),
            "the address that is stored there",
            format!("{} instead of {:#x}", wrong.named, wrong.stored),
        ));
    }
}

/// Words of the GOT without a relocation entry: each holds the address of a symbol that code reaches through the GOT, and
/// follows it. Claims these words and gives their addresses.
fn followed_slots(pair: ImagePair<'_>, section: &SectionView<'_>, ledger: &mut Ledger<'_>) -> Vec<Address> {
    const WORD: usize = 8;
    let mut slots = Vec::new();
    if !section.name.starts_with(b".got") || !section.address.is_multiple_of(WORD as u64) {
        return slots;
    }
    for (index, word) in section.bytes.chunks_exact(WORD).enumerate() {
        let offset = section.offset + (index * WORD) as u64;
        let words = u64_at(word, 0).map(Address).zip(u64_at(pair.new.bytes, offset as usize).map(NewAddress));
        let Some((before, after)) = words.filter(|&(before, _)| is_moved(pair, before)) else { continue };
        if pair.absolute.is_slot_value(before) && pair.mapped(before) == after {
            ledger.claims.add(offset, WORD as u64);
            slots.push(Address(section.address + (index * WORD) as u64));
        }
    }
    slots
}

/// Whether a word at `place` shares bytes with one of the eight-byte words at `words`, in ascending order.
fn overlaps(words: &[Address], place: Address) -> bool {
    let after = words.partition_point(|&word| word.0 < place.0.saturating_add(8));
    after.checked_sub(1).is_some_and(|at| words[at].0 + 8 > place.0)
}

/// Place and value of a constant, which may be an address of the old image.
fn addresses((place, value): (u64, u64)) -> (Address, Address) {
    (Address(place), Address(value))
}

/// A constant that may be an address: eight bytes at any place, or four at an aligned one.
pub(super) fn data_constant(bytes: &[u8], position: usize, place: u64) -> Option<u64> {
    let wide = bytes.get(position..)?.first_chunk::<8>().map(|word| u64::from_le_bytes(*word));
    if let Some(value) = wide.filter(|value| *value <= u64::from(u32::MAX)) {
        return Some(value);
    }
    if !place.is_multiple_of(4) {
        return None;
    }
    bytes.get(position..)?.first_chunk::<4>().map(|word| u64::from(u32::from_le_bytes(*word)))
}

/// The longest instruction has 15 bytes.
const MAX_INSTRUCTION_BYTES: u64 = 14;

/// The constants of all code of a section, which is decoded anew at each start and end of a function: bytes that fill the
/// space between functions may look like the first bytes of an instruction.
pub(super) fn section_constants<'a>(
    section: &'a SectionView<'_>,
    moves: &'a AddressMoves,
) -> impl Iterator<Item = (u64, u64)> + 'a {
    let inside = |address: &u64| (section.address..section.end()).contains(address);
    let functions = moves.as_slice();
    let first = functions.partition_point(|function| function.old_end().0 < section.address);
    let functions = functions.get(first..).unwrap_or_default().iter();
    let functions = functions.take_while(|function| function.old_start.0 < section.end());
    let ends = functions.flat_map(|function| [function.old_start.0, function.old_end().0]);
    let mut starts: Vec<u64> = ends.filter(inside).chain([section.address]).collect();
    starts.sort_unstable();
    starts.dedup();
    let ends: Vec<u64> = starts.iter().skip(1).copied().chain([section.end()]).collect();
    starts.into_iter().zip(ends).flat_map(|(start, end)| {
        // An instruction may reach beyond the size that a function has by its tables.
        let reach = end.saturating_add(MAX_INSTRUCTION_BYTES).min(section.end());
        let bytes = section.at(start, reach - start).unwrap_or_default();
        code_constants(bytes, start).take_while(move |&(place, _)| place < end)
    })
}

/// Immediates and displacements of at least four bytes in x86-64 code, as (address of the instruction, value).
pub(super) fn code_constants(bytes: &[u8], start: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
    let decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    decoder.into_iter().flat_map(|instruction| {
        let is_branch = instruction.op0_kind() == OpKind::NearBranch64;
        let has_plain_displacement =
            !is_branch && instruction.memory_displ_size() >= 4 && !instruction.is_ip_rel_memory_operand();
        let displacement = has_plain_displacement.then(|| instruction.memory_displacement64());
        let operands = if is_branch { 0 } else { instruction.op_count() };
        let immediates = (0..operands).filter_map(move |operand| instruction.try_immediate(operand).ok());
        displacement.into_iter().chain(immediates).map(move |value| (instruction.ip(), value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moves::Move;

    #[test]
    fn bytes_between_functions_do_not_hide_where_code_begins() {
        // RET, a byte of padding, and LEA 0x557021(%rip),%rdi. Read from the padding on, it is a comparison with 0x557021.
        let bytes = [0xc3, 0x00, 0x48, 0x8d, 0x3d, 0x21, 0x70, 0x55, 0x00, 0xc3];
        let section = SectionView {
            name: b".text",
            kind: SHT_PROGBITS,
            flags: 6,
            address: 0x1000,
            offset: 0,
            link: 0,
            info: 0,
            alignment: 1,
            bytes: &bytes,
        };
        let function = |start, size| Move { old_start: Address(start), new_start: NewAddress(start), size };
        let both = AddressMoves::from_evidence(vec![function(0x1000, 1), function(0x1002, 8)]).unwrap();
        assert_eq!(section_constants(&section, &both).collect::<Vec<_>>(), []);
        let first = AddressMoves::from_evidence(vec![function(0x1000, 1)]).unwrap();
        assert_eq!(section_constants(&section, &first).collect::<Vec<_>>(), [(0x1004, 0x55_7021)]);
    }
}
