//! Pins functions that are aligned on purpose.
//!
//! The text is filled to the last byte, so moved functions keep no more alignment than their neighbours happen to leave.
//! Programs may rely on more: flags can be kept in the low bits of the address of a function declared `aligned(64)`.
//! Linkers give the section the largest alignment that was asked for; if that is the ordinary one, none was asked for.
//! Padding belongs to the function before it. Padding of at least the ordinary alignment shows that the next function asked
//! for more. Its neighbours may have asked for as much, but needed less padding.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions};

use super::atoms::{AtomIndex, Atoms};
use super::units::Obligations;
use crate::decode::aarch64::WORD;
use crate::decode::{aarch64_gap, padding};
use crate::elf::analysis::blocks::alignment;
use crate::macho::file::MachOFile;
use crate::ordinary_alignment::ordinary_alignment;
use crate::pins::{Pin, PinReason};
use reorder_base::address::Address;
use reorder_base::processor::Processor;

/// No function asks for more than a page.
const PAGE: u64 = 4096;

/// If more than one function in this many would stay, functions are aligned for speed, as in hand-written codecs:
/// programs keep flags in the addresses of few functions.
const FLAGGED: usize = 8;

/// Pins the functions that show more than ordinary alignment.
pub(super) fn pin_aligned(file: &MachOFile<'_>, atoms: &Atoms, obligations: &mut Obligations<'_>) {
    let own: Vec<u64> = atoms.starts.iter().map(|start| alignment(*start, PAGE)).collect();
    let ordinary = ordinary_alignment(&own);
    let most = 1_u64 << file.text().alignment.min(PAGE.ilog2());
    if most <= ordinary {
        return;
    }
    let is_shown =
        |index: &usize| own[*index] > ordinary && shows_more(file, atoms, own[*index], ordinary, *index);
    let mut staying: Vec<(usize, Pin)> = Vec::new();
    for shown in (1..atoms.len()).filter(is_shown) {
        let pin = Pin { reason: PinReason::Aligned, evidence: atoms.starts[shown] };
        let beside = [shown - 1, shown, shown + 1].into_iter().filter(|&index| index < atoms.len());
        staying.extend(
            beside.filter(|&index| index == shown || own[index] > ordinary).map(|index| (index, pin)),
        );
    }
    staying.sort_by_key(|(index, _)| *index);
    staying.dedup_by_key(|(index, _)| *index);
    if staying.len() * FLAGGED > atoms.len() {
        return;
    }
    for (index, pin) in staying {
        obligations.pin(AtomIndex(index as u32), pin);
    }
}

/// Whether the padding before this atom is explained by its own alignment but not by the ordinary one.
fn shows_more(file: &MachOFile<'_>, atoms: &Atoms, own: u64, ordinary: u64, index: usize) -> bool {
    let padding = padding_at_end(file, atoms.range(AtomIndex(index as u32 - 1)));
    padding >= ordinary && padding.checked_add(1).is_some_and(|more| more.next_power_of_two() <= own)
}

/// Bytes of filler at the end of an atom, up to a page.
fn padding_at_end(file: &MachOFile<'_>, atom: Range<Address>) -> u64 {
    let text = file.text();
    let offset = |address: Address| address.distance_from(text.address) as usize;
    let Some(bytes) = file.section_bytes(text).get(offset(atom.start)..offset(atom.end)) else { return 0 };
    let first_filler: fn(&[u8]) -> usize = match file.processor {
        Processor::Aarch64 => first_word,
        Processor::X86_64 | Processor::Other => first_instruction,
    };
    // An x86-64 no-operation can only be recognised from its first byte. So for each length it is known whether the last
    // bytes of that length are filler, up to the length where no filler can begin.
    let mut is_filler = vec![true];
    let mut longest = 0;
    for length in 1..=bytes.len().min(PAGE as usize) {
        let piece = first_filler(&bytes[bytes.len() - length..]);
        is_filler.push((1..=length).contains(&piece) && is_filler[length - piece]);
        match is_filler[length] {
            true => longest = length,
            false if length - longest >= MAX_FILLER => break,
            false => {}
        }
    }
    longest as u64
}

/// Bytes of the longest x86-64 instruction.
const MAX_FILLER: usize = 15;

/// Length of the filler instruction at the start of `bytes`; 0 if there is none.
fn first_instruction(bytes: &[u8]) -> usize {
    if let Some(0 | 0x90 | 0xcc) = bytes.first() {
        return 1;
    }
    let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    if padding::is_no_operation(&instruction) { instruction.len() } else { 0 }
}

/// The same for AArch64, whose instructions are words.
fn first_word(bytes: &[u8]) -> usize {
    let word = bytes.get(..WORD as usize);
    word.map_or(0, |word| aarch64_gap::filler_length(word, Address(0)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use std::ops::RangeInclusive;

    use super::*;
    use crate::macho::analysis::MachOAnalysis;
    use crate::macho::linked::library;
    use crate::macho::symbol_table::symbols;

    /// Why each of the functions `_a`, `_b`, … stays.
    fn pinned(architecture: &str, source: &str) -> Vec<Option<PinReason>> {
        let source = format!(".text\n{source}\n.subsections_via_symbols\n");
        let bytes = library(architecture, "s", &source, &[], &[]);
        let file = MachOFile::parse(&bytes).unwrap();
        let analysis = MachOAnalysis::new(&file).unwrap();
        let mut starts: Vec<_> = symbols(&file)
            .unwrap()
            .filter(|symbol| symbol.name.len() == 2)
            .filter_map(|symbol| Some((symbol.name, symbol.address()?)))
            .collect();
        starts.sort_unstable();
        starts.into_iter().map(|(_, start)| analysis.pin_at(start).map(|pin| pin.reason)).collect()
    }

    fn function(name: &str, logarithm: u32, body: &str) -> String {
        format!(".globl {name}\n.p2align {logarithm}\n{name}: {body}\n ret\n")
    }

    /// Functions `_a` to `_z`, of which those in `aligned` ask for 64 and the others for the ordinary alignment.
    fn alphabet(aligned: RangeInclusive<char>, ordinary: u32, body: &str) -> String {
        let asked = |letter| if aligned.contains(&letter) { 6 } else { ordinary };
        ('a'..='z').map(|letter| function(&format!("_{letter}"), asked(letter), body)).collect()
    }

    #[test]
    fn atoms_aligned_by_padding_stay_with_their_neighbours() {
        let pinned = |aligned| pinned("x86_64", &alphabet(aligned, 4, "movl $5, %eax\n addl %edi, %eax"));
        assert_eq!(pinned('b'..='a'), [None; 26]);
        let with_one = pinned('b'..='b');
        assert_eq!(
            with_one[..2],
            [Some(PinReason::Aligned); 2],
            "the first stands at the start of the section"
        );
        assert_eq!(with_one[2..], [None; 24]);
        assert_eq!(pinned('b'..='z'), [None; 26], "aligned for speed");
    }

    #[test]
    fn the_same_of_words() {
        let pinned = |aligned| pinned("arm64", &alphabet(aligned, 2, "add x0, x0, #1\n nop"));
        assert_eq!(pinned('b'..='a'), [None; 26]);
        let with_one = pinned('b'..='b');
        assert_eq!((with_one[1], &with_one[2..]), (Some(PinReason::Aligned), &[None; 24][..]));
    }

    #[test]
    fn filler_is_recognised_from_its_first_byte() {
        assert_eq!(first_instruction(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]), 10);
        assert_eq!(first_instruction(&[0xc3]), 0);
        assert_eq!(first_word(&[0x1f, 0x20, 0x03, 0xd5]), 4);
        assert_eq!(first_word(&[0x1f, 0x20]), 0);
    }
}
