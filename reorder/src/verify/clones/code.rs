//! The code outside of the copies: the same, but for branches and addresses that lead to copies.

use std::collections::{BTreeMap, BTreeSet};

use super::follow::Copies;
use super::instruction::{Use, compare};
use crate::address::Address;
use crate::verify::aarch64::{Form, form, page};
use crate::verify::bytes::{displacement_at, range, u32_at};
use crate::verify::elf_view::SectionView;
use crate::verify::processor::Processor;
use crate::verify::recover::AddressMoves;
use crate::verify::report::{Check, Difference, Findings};
use crate::verify::unchanged::Claims;

/// Checks all functions of the old image.
pub(super) fn check_originals(
    copies: &mut Copies<'_>,
    functions: &AddressMoves,
    claims: &mut Claims,
    findings: &mut Findings,
) {
    let mut changed = 0;
    for function in functions.as_slice() {
        let (start, size) = (function.old_start.0, function.size);
        let Some(offset) = copies.old.offset_of(start) else { continue };
        let (Some(old), Some(new)) =
            (range(copies.old.bytes, offset, size), range(copies.new.bytes, offset, size))
        else {
            continue;
        };
        if old == new {
            continue;
        }
        changed += 1;
        claims.add(offset, size);
        if let Err(at) = check_function(copies, (old, new), start) {
            let name = format!("the instruction at {}", Address(at));
            let expected = "the same, or one that leads to a copy of what it led to";
            let offset = Some(offset + (at - start));
            findings.differs(Difference::new(Check::Copies, offset, name, expected, "another one"));
        }
    }
    findings.checked(Check::Copies, "functions that lead to copies", changed);
}

/// Compares a function with itself; gives the place of the first instruction that is not the same.
fn check_function(copies: &mut Copies<'_>, (old, new): (&[u8], &[u8]), start: u64) -> Result<(), u64> {
    let mut position = 0;
    while let (Some(before), Some(after)) = (old.get(position..), new.get(position..)) {
        let address = start + position as u64;
        if before == after {
            return Ok(());
        }
        let pair = compare(copies.old.processor, (before, address), (after, address)).ok_or(address)?;
        if let Some((before, after, usage)) = pair.stated {
            let is_same = match usage {
                Use::Jump | Use::Call => copies.leads_to(before, after),
                Use::Value => copies.stands_for(before, after),
                Use::Same => before == after,
            };
            if !is_same {
                return Err(address);
            }
        }
        position += pair.length as usize;
    }
    Ok(())
}

/// Addresses among `wanted` that code of the new image may form, in whatever way it is cut into instructions, each with a
/// place that does.
pub(super) fn formed(copies: &Copies<'_>, wanted: &BTreeSet<u64>) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    for section in copies.new.code_sections() {
        match copies.new.processor {
            Processor::X86_64 => formed_x86_64(section, wanted, &mut found),
            Processor::Aarch64 => formed_aarch64(section, wanted, &mut found),
        }
    }
    found
}

/// A displacement that counts from the instruction stands behind a ModRM byte that says so, and in front of an immediate of
/// at most four bytes.
fn formed_x86_64(section: &SectionView<'_>, wanted: &BTreeSet<u64>, found: &mut BTreeMap<u64, u64>) {
    for (position, _) in section.bytes.iter().enumerate().filter(|(_, byte)| **byte & 0xc7 == 0x05) {
        let Some(distance) = displacement_at(section.bytes, position + 1) else { continue };
        let place = section.address.wrapping_add(position as u64);
        for immediate in [0, 1, 2, 4] {
            let target = place.wrapping_add(5 + immediate).wrapping_add(distance);
            if wanted.contains(&target) {
                found.insert(target, place);
            }
        }
    }
}

/// What completes a page is not looked for: all of a page that is formed counts.
fn formed_aarch64(section: &SectionView<'_>, wanted: &BTreeSet<u64>, found: &mut BTreeMap<u64, u64>) {
    for position in (0..section.bytes.len()).step_by(4) {
        let Some(word) = u32_at(section.bytes, position) else { break };
        let place = section.address.wrapping_add(position as u64);
        let kind = form(word);
        let target = kind.target(word, place);
        let formed = match kind {
            Form::Adr => target..target.saturating_add(1),
            Form::Adrp => page(target)..page(target).saturating_add(0x1000),
            _ => continue,
        };
        found.extend(wanted.range(formed).map(|address| (*address, place)));
    }
}
