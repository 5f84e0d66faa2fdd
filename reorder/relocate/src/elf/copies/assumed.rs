//! Numbers that are taken for addresses of functions in an image at a fixed address, where nothing lists pointers.
//!
//! Only on request, since such a number may be meant as a number. The start of a function is known as a pointer where it fills
//! an aligned word of data that has other addresses close by, or is the operand of an instruction that moves, pushes or
//! compares 64 bits. One other place that may hold the start, or a form of it that is not known, and the function keeps its
//! address everywhere.

use std::collections::BTreeSet;

use super::AssumedPointers;
use super::inside::is_in_list;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::processor::Processor;
use reorder_image::decode::x86_64::KeptNumber;
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::absolute_addresses::{holds_constants, kept_numbers};
use reorder_image::elf::code::Region;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::section::Section;
use reorder_verify::words_read_as_numbers;

/// What becomes of numbers that equal the address of a function, where nothing says which are pointers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnlistedPointers {
    /// They stay, so pointers lead to originals.
    #[default]
    Keep,
    /// They are taken for pointers where evidence supports it.
    Assume,
}

/// Bytes of a pointer in data.
const WORD: u64 = 8;
/// Words on each side of a pointer among which another address is expected: records of named functions have one within two, and
/// large records with few fields set, such as types of interpreters, within sixteen.
const NEIGHBOURS: u64 = 16;
/// Operands of four bytes are sign-extended, and copies lie after the image.
const MAX_IMAGE_END: u64 = 0x7000_0000;
/// Numbers that people write are multiples of this, and some function may begin at one.
const ROUND: u64 = 1_000;

/// Numbers taken for the addresses of functions.
#[derive(Clone, Debug, Default)]
pub(super) struct Assumed {
    /// Places of words, with the function; ascending.
    pub words: Vec<(Address, Address)>,
    /// Operands, by place.
    pub operands: Vec<KeptNumber>,
}

impl Assumed {
    /// Finds the places that hold one of `starts`. Also gives the starts that may be held elsewhere.
    ///
    /// # Errors
    /// An image that the verifier cannot read.
    pub(super) fn find(
        file: &ElfFile<'_>,
        analysis: &Analysis<'_>,
        starts: &BTreeSet<Address>,
    ) -> Result<(Self, BTreeSet<Address>)> {
        if !operands_reach_copies(file) || analysis.code.processor != Processor::X86_64 {
            return Ok((Self::default(), starts.clone()));
        }
        let (mut words, mut operands) = (Vec::new(), Vec::new());
        let mut excluded: BTreeSet<Address> =
            starts.iter().filter(|start| start.0.is_multiple_of(ROUND)).copied().collect();
        for section in file.sections.iter().filter(|section| holds_constants(section)) {
            let bytes = file.section_bytes(section);
            let flagged = flagged(analysis, bytes, section.address, starts);
            let flagged = flagged.filter(|(place, _)| {
                is_in_list(file, analysis, *place, |_| true)
                    || has_neighbour(analysis, section, bytes, *place)
            });
            excluded.extend(flagged.map(|(_, start)| start));
            excluded.extend(patchable(analysis, bytes, section.address, starts));
            for (place, start, has_room) in starts_in(bytes, section.address, 1, starts) {
                let is_number = !has_room && !place.0.is_multiple_of(4);
                if is_number {
                    continue;
                }
                let is_word = has_room && place.0.is_multiple_of(WORD);
                let may_be_pointer =
                    is_word && !ends_text(bytes, place.distance_from(section.address) as usize);
                match may_be_pointer && has_neighbour(analysis, section, bytes, place) {
                    true => words.push((place, start)),
                    false => _ = excluded.insert(start),
                }
            }
        }
        let numbers = kept_numbers(&analysis.code, &analysis.partition);
        operands.extend(numbers.into_iter().filter(|number| starts.contains(&number.value)));
        operands.sort_unstable_by_key(|number| number.place);
        operands.dedup();
        for section in file.sections.iter().filter(|section| section.is_loaded() && section.is_executable()) {
            if !section.has_bytes() {
                continue;
            }
            for (place, start, _) in starts_in(file.section_bytes(section), section.address, 1, starts) {
                let is_operand = operands.binary_search_by_key(&place, |number| number.place).is_ok();
                let is_copied = analysis.partition.block_containing(place).is_some();
                if !(is_operand && is_copied) {
                    excluded.insert(start);
                }
            }
        }
        let places: Vec<Address> = words.iter().map(|(place, _)| *place).collect();
        let are_numbers =
            if places.is_empty() { Vec::new() } else { words_read_as_numbers(file.bytes, &places)? };
        excluded.extend(
            words.iter().zip(are_numbers).filter(|(_, is_number)| *is_number).map(|((_, start), _)| *start),
        );
        Ok((Self { words, operands }, excluded))
    }

    /// The same without what is not the address of one of `followed`.
    pub(super) fn of(mut self, followed: &BTreeSet<Address>) -> Self {
        self.words.retain(|(_, start)| followed.contains(start));
        self.operands.retain(|number| followed.contains(&number.value));
        self
    }

    /// How much that is.
    pub(super) fn summary(&self) -> AssumedPointers {
        let starts =
            self.words.iter().map(|(_, start)| *start).chain(self.operands.iter().map(|number| number.value));
        let functions = starts.collect::<BTreeSet<Address>>().len();
        AssumedPointers { functions, words: self.words.len(), operands: self.operands.len() }
    }

    /// Operands with a place in `range`.
    pub(super) fn operands_in(&self, range: &std::ops::Range<Address>) -> &[KeptNumber] {
        let from = self.operands.partition_point(|number| number.place < range.start);
        let to = self.operands.partition_point(|number| number.place < range.end);
        &self.operands[from..to.max(from)]
    }
}

/// Whether operands of four bytes hold all addresses of copies.
pub(super) fn operands_reach_copies(file: &ElfFile<'_>) -> bool {
    let ends = file.segments.iter().map(|segment| segment.address.0.saturating_add(segment.memory_size));
    ends.max().is_some_and(|end| end < MAX_IMAGE_END)
}

/// Aligned words that hold one of `starts` plus a number below eight, as pointers with flags do: places and starts.
fn flagged<'run>(
    analysis: &'run Analysis<'_>,
    bytes: &'run [u8],
    address: Address,
    starts: &'run BTreeSet<Address>,
) -> impl Iterator<Item = (Address, Address)> + 'run {
    let first = (address.0.wrapping_neg() % WORD) as usize;
    let words = bytes.get(first..).unwrap_or_default().chunks_exact(WORD as usize);
    words.enumerate().filter_map(move |(number, word)| {
        let place = address.plus(first as u64 + WORD * number as u64);
        let value = Address(u64::from_le_bytes(*word.first_chunk()?));
        let start = starts.range(Address(value.0.saturating_sub(WORD - 1))..value).next_back()?;
        let block = analysis.partition.block_containing(value).map(|block| analysis.partition.block(block));
        (!block.is_some_and(|block| block.is_entry(value))).then_some((place, *start))
    })
}

/// Those of `starts` before which some aligned word names no-operations: room for a patch, which a copy does not have.
fn patchable<'run>(
    analysis: &'run Analysis<'_>,
    bytes: &'run [u8],
    address: Address,
    starts: &'run BTreeSet<Address>,
) -> impl Iterator<Item = Address> + 'run {
    /// More than compilers leave for patches.
    const MAX_ROOM: u64 = 256;
    let first = (address.0.wrapping_neg() % WORD) as usize;
    let words = bytes.get(first..).unwrap_or_default().chunks_exact(WORD as usize);
    words.filter_map(|word| {
        let value = Address(u64::from_le_bytes(*word.first_chunk()?));
        let start =
            starts.range(value.plus(1)..).next().filter(|start| start.distance_from(value) <= MAX_ROOM)?;
        analysis.code.arena_of(value).filter(|arena| *start < arena.end)?;
        let room = analysis.code.bytes(value..*start);
        let is_nop = |instruction: Instruction| instruction.mnemonic() == Mnemonic::Nop;
        let mut decoder = Decoder::with_ip(64, room, value.0, DecoderOptions::NONE);
        decoder.iter().all(is_nop).then_some(*start)
    })
}

/// Four bytes at each multiple of `step` that are one of `starts`: the place, the start, and whether the next four are zero.
fn starts_in<'run>(
    bytes: &'run [u8],
    address: Address,
    step: u64,
    starts: &'run BTreeSet<Address>,
) -> impl Iterator<Item = (Address, Address, bool)> + 'run {
    let bounds = (starts.first().copied(), starts.last().copied());
    let first = (address.0.wrapping_neg() % step) as usize;
    (first..bytes.len().saturating_sub(3)).step_by(step as usize).filter_map(move |position| {
        let low = Address(u64::from(u32::from_le_bytes(*bytes.get(position..)?.first_chunk()?)));
        let is_between = bounds.0 <= Some(low) && Some(low) <= bounds.1;
        let has_room = || bytes.get(position + 4..position + 8) == Some(&[0; 4]);
        (is_between && starts.contains(&low)).then(|| (address.plus(position as u64), low, has_room()))
    })
}

/// Whether the word at `position` holds the end of a text that begins before it: the last three bytes of a message, " 4)", read as
/// the number 0x293420.
fn ends_text(bytes: &[u8], position: usize) -> bool {
    /// One byte alone may be the highest of a number, such as 1.0.
    const BEFORE: usize = 2;
    // UTF-8 has bytes above 0x7f, but not these; a negative number has.
    let is_in_utf8 = |byte: u8| !matches!(byte, 0xc0 | 0xc1 | 0xf5..);
    let is_text = |byte: &u8| is_in_utf8(*byte) && (!byte.is_ascii_control() || byte.is_ascii_whitespace());
    let before = position.checked_sub(BEFORE).and_then(|before| bytes.get(before..position));
    let word = bytes.get(position..).unwrap_or_default().iter().take(WORD as usize);
    before.is_some_and(|bytes| bytes.iter().all(is_text))
        && word.skip_while(|byte| is_text(byte)).all(|byte| *byte == 0)
}

/// Whether a word close to that at `place` holds the address of a function or of data.
fn has_neighbour(analysis: &Analysis<'_>, section: &Section<'_>, bytes: &[u8], place: Address) -> bool {
    let is_address = |at: u64| {
        let position = usize::try_from(at.checked_sub(section.address.0)?).ok()?;
        let value = Address(u64::from_le_bytes(*bytes.get(position..)?.first_chunk()?));
        let block =
            || analysis.partition.block_containing(value).map(|block| analysis.partition.block(block));
        Some(
            analysis.code.region(value) == Region::Data || block().is_some_and(|block| block.is_entry(value)),
        )
    };
    (1..=NEIGHBOURS).any(|distance| {
        let others = [place.0.checked_sub(WORD * distance), place.0.checked_add(WORD * distance)];
        others.into_iter().flatten().any(|at| is_address(at).unwrap_or(false))
    })
}
