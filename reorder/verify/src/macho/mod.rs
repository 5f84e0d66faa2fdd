//! Proves that one Mach-O image is another with its functions moved.
//!
//! ```text
//! old bytes ─┐                                 ┌─> each check: findings + claims (bytes it answers for)
//!            ├─> recover: where atoms went ────┤
//! new bytes ─┘   (or a claim, to be checked)   └─> rest: all other bytes are the same, or distances that followed
//! ```
//!
//! As for ELF, nothing here uses the crates that read, analyse or relocate images.

mod atoms;
mod code;
mod commands;
mod dispatch;
mod entries;
mod exports;
mod fixups;
mod frames;
mod pair;
mod parts;
mod recover;
mod recover_code;
mod recover_equals;
mod rest;
mod signature;
mod tables;
mod universal;
mod unwind;
mod view;
mod x86_64;
mod x86_64_walk;

use super::VerifyOptions;
use super::report::{Check, Difference, Findings, VerifyReport};
use super::unchanged::Claims;
use crate::moves::{AddressMoves, Move};
use crate::remark::Remark;
use pair::{Ledger, MachPair};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use universal::Slice;
use view::MachView;

/// Whether the file begins like a 64-bit little-endian Mach-O image or a universal file.
pub(super) fn is_macho(bytes: &[u8]) -> bool {
    const MAGICS: [[u8; 4]; 3] =
        [[0xcf, 0xfa, 0xed, 0xfe], [0xca, 0xfe, 0xba, 0xbe], [0xca, 0xfe, 0xba, 0xbf]];
    bytes.first_chunk::<4>().is_some_and(|magic| MAGICS.contains(magic))
}

/// Checks, image by image, that `new` is `old` with functions moved. If a `claim` is given, it replaces the recovered map.
///
/// # Errors
/// The *old* file cannot be read, or a claim is made for several images.
pub(super) fn verify(
    old: &[u8],
    new: &[u8],
    claim: Option<&[Move]>,
    options: VerifyOptions,
) -> Result<VerifyReport> {
    let mut findings = Findings::new(options.listed_differences);
    let old_slices = universal::slices(old)?;
    let new_slices = match universal::slices(new) {
        Ok(slices) => slices,
        Err(error) => {
            findings.differs(not_comparable(&error));
            return Ok(findings.finish());
        }
    };
    match (old_slices, new_slices) {
        (None, None) => verify_image(old, new, claim, options),
        (Some(old_slices), Some(new_slices)) => {
            if claim.is_some() && old_slices.len() != 1 {
                return Err(Error::usage("a map was given for a file with several images"));
            }
            if !universal::check_slices(&old_slices, &new_slices, &mut findings) {
                return Ok(findings.finish());
            }
            let mut report = findings.finish();
            check_between(old, new, (&old_slices, &new_slices), &mut report);
            for (before, after) in old_slices.iter().zip(&new_slices) {
                let (bytes, new_bytes) = (&old[before.range.clone()], &new[after.range.clone()]);
                let part = match bytes == new_bytes {
                    true => unchanged(bytes),
                    false => verify_image(bytes, new_bytes, claim, options).map_err(|error| Error {
                        offset: error.offset.map(|at| at + before.range.start as u64),
                        ..error
                    })?,
                };
                append(&mut report, part, after, options);
            }
            Ok(report)
        }
        _ => {
            let difference = Difference::new(
                Check::Correspondence,
                Some(0),
                "the new file",
                "as many images as the old one",
                "another kind of file",
            );
            findings.differs(difference);
            Ok(findings.finish())
        }
    }
}

/// The bytes outside the images are the same header, or zeros.
fn check_between(old: &[u8], new: &[u8], slices: (&[Slice], &[Slice]), report: &mut VerifyReport) {
    let mut places: Vec<_> = slices.1.iter().map(|slice| slice.range.clone()).collect();
    places.sort_by_key(|range| range.start);
    let entry = if new.get(3) == Some(&0xbe) { 20 } else { 32 };
    let mut end = 8 + slices.1.len() * entry;
    let mut is_clear = old.get(..8) == new.get(..8);
    for range in places.into_iter().chain(std::iter::once(new.len()..new.len())) {
        is_clear &= new[end.min(range.start)..range.start].iter().all(|&byte| byte == 0);
        end = range.end;
    }
    if !is_clear {
        report.difference_count += 1;
        report.differences.push(Difference::new(
            Check::Unchanged,
            Some(0),
            "what lies between the images of the universal file",
            "zeros",
            "something else",
        ));
    }
}

/// The report of an image that is the same byte for byte.
fn unchanged(bytes: &[u8]) -> VerifyReport {
    let mut findings = Findings::new(0);
    findings.checked(Check::Unchanged, "bytes", bytes.len());
    findings.finish()
}

/// Adds the report of one image to that of the file.
fn append(report: &mut VerifyReport, part: VerifyReport, slice: &Slice, options: VerifyOptions) {
    report.functions += part.functions;
    report.moved += part.moved;
    report.difference_count += part.difference_count;
    for summary in part.checks {
        let known =
            report.checks.iter_mut().find(|known| known.check == summary.check && known.unit == summary.unit);
        match known {
            Some(known) => known.count += summary.count,
            None => report.checks.push(summary),
        }
    }
    let title = slice.title();
    for mut difference in part.differences {
        if report.differences.len() < options.listed_differences {
            difference.place = format!("{title}: {}", difference.place);
            difference.offset = difference.offset.map(|offset| offset.plus(slice.range.start as u64));
            report.differences.push(difference);
        }
    }
    let of_image = |remark| Remark::OfImage { image: title.clone(), remark: Box::new(remark) };
    report.remarks.extend(part.remarks.into_iter().map(of_image));
}

fn not_comparable(error: &Error) -> Difference {
    Difference::new(
        Check::Correspondence,
        error.offset,
        "the new image",
        "an image with the functions of the old one",
        error.to_string(),
    )
}

fn verify_image(
    old: &[u8],
    new: &[u8],
    claim: Option<&[Move]>,
    options: VerifyOptions,
) -> Result<VerifyReport> {
    let mut findings = Findings::new(options.listed_differences);
    let old = MachView::parse(old)?;
    // If tables of the old image cannot be read, that is an error and not a difference of the new one.
    match claim {
        Some(_) => atoms::moves_by(&old, |start| start).map(drop)?,
        None => recover::check_tables(&old)?,
    }
    let outcome = MachView::parse(new).and_then(|new| {
        commands::comparable(&old, &new)?;
        let moves = match claim {
            Some(claim) => claimed_moves(&old, claim)?,
            None => recover::recover(&old, &new)?,
        };
        check(MachPair { old: &old, new: &new, moves: &moves }, &mut findings)
    });
    if let Err(error) = outcome {
        findings.differs(not_comparable(&error));
    }
    Ok(findings.finish())
}

/// The claim, divided into atoms.
fn claimed_moves(old: &MachView<'_>, claim: &[Move]) -> Result<AddressMoves> {
    let claim = AddressMoves::from_evidence(claim.to_vec())?;
    atoms::moves_by(old, |start| claim.map(Address(start)).0)
}

/// Runs all checks over two images whose atoms correspond.
fn check(pair: MachPair<'_>, findings: &mut Findings) -> Result<()> {
    if pair.moves.moved() > 0 {
        commands::check_kinds(pair.old)?;
    }
    findings.functions(pair.moves.len(), pair.moves.moved());
    findings.checked(Check::Correspondence, "functions", pair.moves.len());
    let mut claims = Claims::default();
    let mut ledger = Ledger { findings, claims: &mut claims };
    commands::check_commands(pair, &mut ledger);
    commands::check_link_edit(pair, &mut ledger);
    code::check_code(pair, &mut ledger);
    dispatch::check_functions_with_tables(pair, &mut ledger)?;
    let slots = fixups::check_slots(pair, &mut ledger)?;
    tables::check_entry(pair, &mut ledger);
    tables::check_initialisers(pair, &mut ledger);
    unwind::check_unwind(pair, &mut ledger)?;
    frames::check_frames(pair, &mut ledger)?;
    tables::check_symbols(pair, &mut ledger);
    exports::check_exports(pair, &mut ledger)?;
    tables::check_starts(pair, &mut ledger)?;
    tables::check_data_in_code(pair, &mut ledger);
    rest::check_relative_words(pair, &slots, &mut ledger);
    signature::check_signature(pair, &mut ledger);
    rest::check_the_rest(pair, claims, findings);
    Ok(())
}

/// Pairs the functions of two Mach-O files. In universal files, `architecture` (as linkers name it) selects the image; it
/// may be omitted if there is only one.
///
/// # Errors
/// Damaged files, images that do not correspond, several images and no architecture.
pub(super) fn recover_moves_for(old: &[u8], new: &[u8], architecture: Option<&str>) -> Result<AddressMoves> {
    let (old, new) =
        (MachView::parse(choose(old, architecture)?)?, MachView::parse(choose(new, architecture)?)?);
    commands::comparable(&old, &new)?;
    recover::recover(&old, &new)
}

fn choose<'data>(bytes: &'data [u8], architecture: Option<&str>) -> Result<&'data [u8]> {
    let Some(slices) = universal::slices(bytes)? else { return Ok(bytes) };
    let mut fitting =
        slices.iter().filter(|slice| architecture.is_none_or(|architecture| slice.title() == architecture));
    match (fitting.next(), fitting.next()) {
        (Some(slice), None) => Ok(&bytes[slice.range.clone()]),
        (Some(_), Some(_)) => {
            Err(Error::usage("the file has several images").with_hint(Hint::ChooseArchitecture(None)))
        }
        (None, _) => Err(Error::usage("the file has no image for this architecture")),
    }
}
