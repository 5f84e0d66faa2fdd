//! Where a second link of the same objects put each function.
//!
//! lld writes the symbol table in the order of its inputs in any layout, so the same entry of both tables is
//! the same symbol, even where many local functions share a name. Every pair must agree in name, type and size; that
//! is checked, and functions without a symbol at their start are found by their distance to one before.

use std::fs;
use std::path::Path;

use layout_algos::score::Span;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::symbol::{Symbol, SymbolTable};

use crate::layout_corpus::Corpus;

/// The functions' positions in a second link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// By function.
    pub spans: Vec<Span>,
    /// Functions whose position is unknown; they count as if they had not moved.
    pub unmatched: Vec<u32>,
}

/// Looks up all functions of `corpus` in the image at `relinked`.
///
/// # Errors
/// Unreadable images, and images that are not links of the same objects.
pub fn positions(corpus: &Corpus, relinked: &Path) -> Result<Positions, String> {
    let plain = fs::read(corpus.directory.join("image")).map_err(|error| error.to_string())?;
    let other = fs::read(relinked).map_err(|error| format!("{}: {error}", relinked.display()))?;
    let moves = symbol_moves(&plain, &other).map_err(|error| format!("{}: {error}", relinked.display()))?;
    let mut unmatched = Vec::new();
    let mut spans = corpus.spans.clone();
    for (function, span) in spans.iter_mut().enumerate() {
        let section = corpus.section_of[function].map(|index| corpus.sections[index as usize]);
        let after = moves.partition_point(|&(from, _)| from <= span.start);
        // A section moves as a whole: any symbol of the same section gives its distance.
        let known = after.checked_sub(1).map(|index| moves[index]).filter(|&(from, _)| {
            from == span.start
                || section.is_some_and(|section| from >= section.address && from < section.end())
        });
        match known {
            Some((from, to)) => {
                let start = to + (span.start - from);
                *span = Span { start, end: start + (span.end - span.start) };
            }
            // Functions outside the permuted sections do not move.
            None if section.is_none() => {}
            None => unmatched.push(function as u32),
        }
    }
    Ok(Positions { spans, unmatched })
}

/// Old and new address of every defined symbol of code, sorted.
fn symbol_moves(plain: &[u8], other: &[u8]) -> Result<Vec<(u64, u64)>, String> {
    let plain = ElfFile::parse(plain).map_err(|error| error.to_string())?;
    let other = ElfFile::parse(other).map_err(|error| error.to_string())?;
    let table = |file| SymbolTable::parse(file, object::elf::SHT_SYMTAB.0).map_err(|error| error.to_string());
    let (old_symbols, new_symbols) = (table(&plain)?, table(&other)?);
    if old_symbols.len() != new_symbols.len() {
        return Err(format!("{} symbols, not {}: not the same link", new_symbols.len(), old_symbols.len()));
    }
    let mut moves = Vec::new();
    for (old, new) in old_symbols.iter().zip(new_symbols.iter()) {
        let is_same = |old: &Symbol<'_>, new: &Symbol<'_>| {
            (old.name, old.size, old.kind, old.binding) == (new.name, new.size, new.kind, new.binding)
        };
        if !is_same(&old, &new) {
            return Err(format!(
                "symbol {} stands where {} should: not the same link",
                new.name.escape_ascii(),
                old.name.escape_ascii()
            ));
        }
        let is_code = |symbol: &Symbol<'_>| {
            let section = symbol.defining_section().and_then(|index| plain.section_at(index));
            // Labels without size may be at the end of one section and mean the start of the next.
            section.is_some_and(|section| section.is_executable())
                && (symbol.is_function() || symbol.size > 0)
        };
        if is_code(&old) {
            moves.push((old.value.0, new.value.0));
        }
    }
    moves.sort_unstable();
    match moves.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
        Some(pair) => Err(format!("two symbols at {:#x} parted", pair[0].0)),
        None => Ok(moves),
    }
}
