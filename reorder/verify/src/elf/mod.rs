//! Proves that one ELF image is another with its functions moved, or copied.

mod absolute;
mod absolute_fields;
mod alignment;
mod clones;
mod compact_relocations;
mod data_in_code;
mod dispatch;
mod dropped_debug;
mod first_bytes;
mod functions;
pub(crate) mod gaps;
mod kept_relocations;
mod landing_pads;
mod marked_pointers;
mod names;
mod notes;
pub(crate) mod pair;
mod pointers;
mod recover;
mod relocated_field;
mod sframe;
mod summed_distances;
mod symbol_values;
mod symbol_walk;
mod tables;
mod unwind;
mod unwind_order;
pub(crate) mod unwind_walk;
pub(crate) mod view;
mod whole_functions;

pub(crate) use recover::recover_moves;

use std::ops::Range;

use absolute_fields::AbsoluteFields;
use functions::CodeOutcome;
use landing_pads::LandingPads;
use pair::{ImagePair, Ledger};
use reorder_base::address::Address;
use reorder_base::error::{Error, ErrorKind, Result};
use tables::Explained;
use view::ElfView;

use crate::processor::Processor;
use crate::remark::Remark;
use crate::report::{Check, Difference, Findings, VerifyReport};
use crate::unchanged::Claims;
use crate::{JudgedStarts, ProvenUse, TableUse, VerifyOptions, debug};

/// [`crate::verify`] for ELF.
pub(crate) fn verify(old: &[u8], new: &[u8], options: VerifyOptions) -> Result<VerifyReport> {
    let mut findings = Findings::new(options.listed_differences);
    let old = ElfView::parse(old)?;
    let whole = without_proven_copies(&old, new)?;
    let old = whole.as_deref().map(ElfView::parse).transpose()?.unwrap_or(old);
    // An old image that does not correspond to itself is malformed; report that as an error instead of a fault of the new
    // image.
    let (itself, outcome) = rayon::join(
        || recover::moves_between(&old, &old),
        || verify_images(&old, &ElfView::parse(new)?, options, &mut findings),
    );
    itself?;
    if let Err(error) = outcome {
        findings.differs(correspondence(&error));
    }
    Ok(findings.finish())
}

/// [`crate::words_read_as_numbers`] for ELF.
pub(crate) fn words_read_as_numbers(image: &[u8], words: &[Address]) -> Result<Vec<bool>> {
    clones::read_as_numbers(&ElfView::parse(image)?, words)
}

/// [`crate::judge_starts`] for ELF.
pub(crate) fn judge_starts(
    image: &[u8],
    found: &[Range<Address>],
    starts: &[Address],
) -> Result<JudgedStarts> {
    clones::judge_starts(&ElfView::parse(image)?, found, starts)
}

/// [`crate::provable_tables`] for ELF.
pub(crate) fn provable_tables(
    image: &[u8],
    found: &[Range<Address>],
    uses: &[TableUse],
) -> Result<Vec<Option<ProvenUse>>> {
    clones::provable(&ElfView::parse(image)?, found, uses)
}

/// The old image without its copies, if it has any: a run of it is a run of the image without them, which the new image is
/// compared with. `None` too if both images are the same.
fn without_proven_copies(old: &ElfView<'_>, new: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(record) = clones::Record::of(old)?.filter(|_| old.bytes != new) else { return Ok(None) };
    let whole = record.without_copies(old.bytes);
    let mut findings = Findings::new(0);
    clones::check(&ElfView::parse(&whole)?, old, &record, &mut findings)?;
    match findings.finish().is_proven() {
        true => Ok(Some(whole)),
        false => Err(Error::malformed(0, "the list of copies does not lead to the image without them")),
    }
}

/// Checks an image in which functions moved, or were copied, or both.
fn verify_images(
    old: &ElfView<'_>,
    new: &ElfView<'_>,
    options: VerifyOptions,
    findings: &mut Findings,
) -> Result<()> {
    match clones::Record::of(new)? {
        Some(record) if clones::Record::of(old)?.is_none() => {
            let whole = record.without_copies(new.bytes);
            let without = ElfView::parse(&whole)?;
            if without.bytes != old.bytes {
                verify_moved(old, &without, options, findings)?;
            }
            clones::check(&without, new, &record, findings)
        }
        _ => verify_moved(old, new, options, findings),
    }
}

/// Checks an image in which functions moved.
fn verify_moved(
    old: &ElfView<'_>,
    new: &ElfView<'_>,
    options: VerifyOptions,
    findings: &mut Findings,
) -> Result<()> {
    match unwind_order::are_sorted(old, new) {
        false => verify_ordered(old, new, options, findings),
        true => {
            let whole = unwind_order::put_back(old, new)?;
            verify_ordered(old, &ElfView::parse(&whole)?, options, findings)
        }
    }
}

/// Checks an image whose unwind entries are in the old order.
fn verify_ordered(
    old: &ElfView<'_>,
    new: &ElfView<'_>,
    options: VerifyOptions,
    findings: &mut Findings,
) -> Result<()> {
    if !names::are_reordered(old, new) {
        return verify_with_names(old, new, None, options, findings);
    }
    let (whole, strings) = names::put_back(old, new)?;
    findings.checked(Check::Symbols, "reordered strings", strings.end.distance_from(strings.start) as usize);
    verify_with_names(old, &ElfView::parse(&whole)?, Some(strings), options, findings)
}

/// Checks an image whose dynamic strings are in the old order; `strings` are where they are, if they were in another one.
fn verify_with_names(
    old: &ElfView<'_>,
    new: &ElfView<'_>,
    strings: Option<Range<Address>>,
    options: VerifyOptions,
    findings: &mut Findings,
) -> Result<()> {
    match debug::layout::is_rewritten(old, new) {
        false => verify_pair(old, new, (None, strings), options, findings),
        true => {
            let whole = debug::layout::put_back(old, new)?;
            verify_pair(old, &ElfView::parse(&whole)?, (Some(new), strings), options, findings)
        }
    }
}

/// Checks two images of the same layout. `updated` is the new image as it is in the file, if its debug information was
/// rewritten; `strings` are the dynamic strings, if they were reordered.
fn verify_pair(
    old: &ElfView<'_>,
    new: &ElfView<'_>,
    (updated, strings): (Option<&ElfView<'_>>, Option<Range<Address>>),
    options: VerifyOptions,
    findings: &mut Findings,
) -> Result<()> {
    if old.bytes.len() != new.bytes.len() {
        return Err(Error::verification(format!(
            "the file had {} bytes and has {}",
            old.bytes.len(),
            new.bytes.len()
        )));
    }
    if old.sections.len() != new.sections.len() || old.segments.len() != new.segments.len() {
        return Err(Error::verification("the numbers of sections or segments differ"));
    }
    if old.processor != new.processor {
        return Err(Error::verification("the images are for different processors"));
    }
    let moves = recover::moves_between(old, new)?;
    let absolute = AbsoluteFields::collect(old);
    let pads = LandingPads::of(old);
    let alignments = match options.keeps_alignment {
        true => alignment::Alignments::of(old, &moves),
        false => alignment::Alignments::default(),
    };
    let pair =
        ImagePair { old, new, moves: &moves, absolute: &absolute, pads: &pads, alignments: &alignments };
    compare(pair, (updated, strings), findings)?;
    updated.map_or(Ok(()), |updated| debug::check_debug(pair, updated, findings))
}

fn correspondence(error: &Error) -> Difference {
    let expected = match error.kind {
        ErrorKind::Verification => "the functions of the old image",
        _ => "an image that can be read",
    };
    Difference::new(Check::Correspondence, error.offset, "the new image", expected, error.to_string())
}

/// Runs all checks over two images whose functions correspond.
fn compare(
    pair: ImagePair<'_>,
    (updated, strings): (Option<&ElfView<'_>>, Option<Range<Address>>),
    findings: &mut Findings,
) -> Result<()> {
    findings.functions(pair.moves.len(), pair.moves.moved());
    findings.checked(Check::Correspondence, "functions", pair.moves.len());
    let mut claims = Claims::default();
    let mut ledger = Ledger { findings, claims: &mut claims };
    let (outcome, tables) = rayon::join(
        || functions::compare_functions(pair),
        || {
            absolute::check_absolute_addresses(pair, &mut ledger);
            if updated.is_none() {
                dropped_debug::accept_dropped_debug(pair, &mut ledger);
            }
            unwind::check_unwind_entries(pair, &mut ledger)?;
            unwind::check_search_table(pair, &mut ledger);
            sframe::check_sframe(pair, &mut ledger)
        },
    );
    tables?;
    let explained = check_code(pair, outcome, strings, &mut ledger);
    pointers::check_loader_pointers(pair, &mut ledger);
    symbol_values::check_symbols(pair, &mut ledger);
    kept_relocations::check_kept_relocations(pair, updated, &mut ledger);
    notes::check_notes(pair, &mut ledger);
    check_the_rest(pair, &explained, claims, findings);
    Ok(())
}

/// Checks functions in both directions and everything between them, and claims all bytes of code sections.
fn check_code(
    pair: ImagePair<'_>,
    mut outcome: CodeOutcome,
    strings: Option<Range<Address>>,
    ledger: &mut Ledger<'_>,
) -> Explained {
    ledger.findings.checked(Check::Functions, "instructions", outcome.instructions);
    ledger.findings.checked(Check::Functions, "address fields", outcome.fields);
    ledger.findings.checked(Check::Reverse, "functions", pair.moves.len() - outcome.opaque);
    if outcome.opaque > 0 {
        ledger.findings.remark(Remark::UndecodableFunctions(outcome.opaque));
    }
    for difference in std::mem::take(&mut outcome.differences) {
        ledger.findings.differs(difference);
    }
    summed_distances::check_summed(pair, &outcome.summed, ledger.findings);
    marked_pointers::check_marked_pointers(pair, &outcome.formed, ledger.findings);
    first_bytes::check_first_bytes(pair, ledger.findings);
    let gaps = gaps::check_gaps(pair, ledger.findings);
    outcome.naming.extend(gaps.naming);
    match pair.old.processor {
        Processor::X86_64 => {
            outcome.references.extend(gaps.references);
            outcome.references.sort_unstable();
        }
        // Two instructions form an address, so the comparison of single instructions has none of them.
        Processor::Aarch64 => outcome.references = functions::references(pair),
    }
    if let Some(strings) = strings
        && let Some(reference) = outcome.references.iter().find(|reference| strings.contains(reference))
    {
        let place = "the dynamic strings";
        let found = format!("another order, although code refers to {reference}");
        ledger.findings.differs(Difference::new(
            Check::Symbols,
            None,
            place.to_owned(),
            "the old order",
            found,
        ));
    }
    for section in pair.old.code_sections() {
        ledger.claims.add(section.offset, section.bytes.len() as u64);
    }
    tables::check_tables(pair, &outcome, ledger)
}

/// Checks every byte that no other check claimed.
fn check_the_rest(pair: ImagePair<'_>, explained: &Explained, claims: Claims, findings: &mut Findings) {
    let (old, new) = (pair.old.bytes, pair.new.bytes);
    let compared = claims.compare_rest(old, new, |run| {
        let Some(position) = explained.unexplained(&run) else { return };
        if !findings.lists_more() {
            findings.differs_silently();
        } else {
            let place = describe(pair.old, position as u64);
            let (expected, found) = (old[position].into(), new[position].into());
            findings.differs(Difference::number(Check::Unchanged, position as u64, &place, expected, found));
        }
    });
    findings.checked(Check::Unchanged, "bytes", compared);
}

/// Describes a file position for people.
fn describe(image: &ElfView<'_>, position: u64) -> String {
    let section = image
        .sections
        .iter()
        .find(|section| (section.offset..section.offset + section.bytes.len() as u64).contains(&position));
    match section {
        Some(section) => {
            let name = String::from_utf8_lossy(section.name);
            format!("a byte of {name} at {:#x}", section.address.wrapping_add(position - section.offset))
        }
        None => "a byte of the headers or between sections".to_owned(),
    }
}
