//! Whose addresses follow the copies, and every place outside of the copies that then leads to one.
//!
//! A function whose address is compared must have one address. It is the copy's only where everything that can form it is
//! known and rewritten; else it stays the original's, and only branches lead to the copy.

use std::collections::BTreeSet;

use super::assumed::{Assumed, UnlistedPointers};
use super::bodies::Body;
use super::inside::formed_addresses;
use super::placed::Copies;
use super::step::{Form, Use};
use crate::code_reference::{out_of_reach, rewrite};
use reorder_base::address::{Address, FileOffset, NewAddress};
use reorder_base::error::Result;
use reorder_base::processor::Processor;
use reorder_image::code_reference::{CodeForm, CodeReference};
use reorder_image::decode::aarch64::{Operation, PAGE, decode};
use reorder_image::decode::x86_64::{Field, FieldKind};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::fields::CodeFields;
use reorder_image::elf::analysis::units::unit_containing;
use reorder_image::elf::file::{ENTRY_FIELD, ElfFile};
use reorder_image::elf::functions::ElfFunctions;
use reorder_verify::{JudgedStarts, judge_starts};

/// Starts of functions in `bodies` of which all addresses are known, and at a fixed address what was taken for one.
///
/// # Errors
/// An image that the verifier cannot read.
pub(super) fn followed(
    file: &ElfFile<'_>,
    analysis: &Analysis<'_>,
    bodies: &[Body],
    evident: &Evident,
    unlisted: UnlistedPointers,
) -> Result<(BTreeSet<Address>, Assumed)> {
    let is_fixed = analysis.code.is_fixed_address;
    if is_fixed && unlisted == UnlistedPointers::Keep {
        // Constants hold addresses that no table lists.
        return Ok((BTreeSet::new(), Assumed::default()));
    }
    let candidates = bodies
        .iter()
        .filter(|body| !has_bytes_before(analysis, body) && !analysis.exposure.may_be_addressed(body.block));
    // What stands before a further function in a body is code of the body.
    let starts = candidates.map(|body| body.range.start);
    let mut followed: BTreeSet<Address> = starts.filter(|start| evident.may_follow(*start)).collect();
    for section in file.sections.iter().filter(|section| section.is_loaded() && section.has_bytes()) {
        let (bytes, address) = (file.section_bytes(section), section.address);
        let is_data = section.kind == object::elf::SHT_PROGBITS.0 && !section.name.starts_with(b".eh_frame");
        let kept: Vec<Address> = match section.is_executable() {
            true => formed_by_code(analysis.code.processor, bytes, address, &followed)
                .into_iter()
                .filter(|(_, place)| !is_known_address(analysis, *place))
                .map(|(target, _)| target)
                .collect(),
            false if is_data => {
                distances(bytes, address).filter(|target| followed.contains(target)).collect()
            }
            false => Vec::new(),
        };
        for target in kept {
            followed.remove(&target);
        }
    }
    if !is_fixed {
        return Ok((followed, Assumed::default()));
    }
    let (assumed, excluded) = Assumed::find(file, analysis, &followed)?;
    followed.retain(|start| !excluded.contains(start));
    let assumed = assumed.of(&followed);
    Ok((followed, assumed))
}

/// Whether callers may read bytes before the entry: a prefix, data of no function, or the end of a block that control runs out of, such
/// as a type hash with a symbol. Any tie to an earlier block counts, since
/// units do not say which kind it is.
fn has_bytes_before(analysis: &Analysis<'_>, body: &Body) -> bool {
    let block_start = analysis.partition.block(body.block).start;
    let unit = unit_containing(&analysis.units, block_start);
    let is_tied = unit.is_some_and(|unit| analysis.units[unit.0 as usize].blocks.start < body.block.0);
    let follows_bytes = || analysis.partition.bytes_before(&analysis.code, body.block).is_some();
    block_start != body.range.start || is_tied || follows_bytes()
}

/// What the verifier knows about starts of functions.
pub(super) struct Evident {
    /// Functions that nothing describes, ascending.
    found: Vec<Address>,
    judged: JudgedStarts,
}

impl Evident {
    /// Asks the verifier about functions that were found in `file`, and about the starts of `bodies`.
    ///
    /// # Errors
    /// An image that the verifier cannot read.
    pub(super) fn of(file: &ElfFile<'_>, functions: &ElfFunctions<'_>, bodies: &[Body]) -> Result<Self> {
        let found = functions.found.iter().map(|range| range.start).collect();
        let mut starts: Vec<Address> = bodies.iter().map(|body| body.range.start).collect();
        starts.sort_unstable();
        Ok(Self { found, judged: judge_starts(file.bytes, &functions.found, &starts)? })
    }

    /// Whether the address of the function at `start` may become that of its copy.
    fn may_follow(&self, start: Address) -> bool {
        self.contains(start) && self.judged.read_from_before.binary_search(&start).is_err()
    }

    fn contains(&self, start: Address) -> bool {
        self.found.binary_search(&start).is_err() || self.judged.evident.binary_search(&start).is_ok()
    }
}

/// The targets of the words of `bytes`, each read as a distance from itself, as in tables of relative pointers.
fn distances(bytes: &[u8], address: Address) -> impl Iterator<Item = Address> + '_ {
    bytes.chunks_exact(4).enumerate().map(move |(number, word)| {
        let distance = i32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        address.plus(4 * number as u64).plus(i64::from(distance) as u64)
    })
}

/// Addresses among `wanted` that `code` may form, however it is cut into instructions, and the place that does. On
/// AArch64 the whole page whose address is formed counts: several instructions may complete it, and one alone cannot be
/// redirected.
pub(super) fn formed_by_code(
    processor: Processor,
    code: &[u8],
    address: Address,
    wanted: &BTreeSet<Address>,
) -> Vec<(Address, Address)> {
    let whole = formed_addresses(processor, code, address).filter(|(target, _)| wanted.contains(target));
    let mut formed: Vec<(Address, Address)> = whole.collect();
    if processor == Processor::Aarch64 {
        for (number, word) in code.chunks_exact(4).enumerate() {
            let place = address.plus(4 * number as u64);
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            if let Operation::Adrp(_, page) = decode(word, place)
                && page < page.plus(PAGE)
            {
                formed.extend(wanted.range(page..page.plus(PAGE)).map(|target| (*target, place)));
            }
        }
    }
    formed
}

/// Whether the analysis lists an instruction that keeps the address in the field at `place`.
fn is_known_address(analysis: &Analysis<'_>, place: Address) -> bool {
    let block = analysis.partition.block_containing(place);
    let (CodeFields::X86_64(fields), Some(block)) = (&analysis.fields, block) else { return false };
    let is_it =
        |field: &Field| field.kind == FieldKind::AddressOf && analysis.code.address(field.place) == place;
    fields.of(block.0..block.0 + 1).iter().any(is_it)
}

/// Redirects branches and addresses in the code outside of the copies, pointers, dynamic symbols and the entry point to
/// the copies. `index` is that of the copies' section.
///
/// # Errors
/// Branches that do not reach so far (R12).
pub(super) fn redirect(
    file: &ElfFile<'_>,
    (functions, analysis, assumed): (&ElfFunctions<'_>, &Analysis<'_>, &Assumed),
    evident: &Evident,
    copies: &Copies<'_>,
    index: u16,
    output: &mut [u8],
) -> Result<()> {
    redirect_code(analysis, copies, evident, output)?;
    let mut put = |place: FileOffset, bytes: &[u8]| {
        let start = place.0 as usize;
        if let Some(field) = output.get_mut(start..start + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    };
    let new_address =
        |address: Address| copies.followed.contains(&address).then(|| copies.kept_address(address));
    for pointer in &analysis.pointers {
        if let Some(new) = new_address(pointer.target) {
            let fields = pointer.addend_field.into_iter().chain(pointer.place_field);
            fields.for_each(|field| put(field, &new.0.to_le_bytes()));
        }
    }
    for &(place, start) in &assumed.words {
        if let (Some(offset), Some(new)) = (file.offset_of(place, 8), new_address(start)) {
            put(offset, &new.0.to_le_bytes());
        }
    }
    for number in &assumed.operands {
        if let Some(new) = new_address(number.value) {
            put(analysis.code.file_offset(number.place), &new.0.to_le_bytes()[..usize::from(number.width)]);
        }
    }
    for symbol in functions.dynamic_symbols.iter() {
        let is_address =
            symbol.defining_section().is_some() && !symbol.is_section() && !symbol.is_thread_local();
        if let (true, Some(new)) = (is_address, new_address(symbol.value)) {
            put(symbol.value_field, &new.0.to_le_bytes());
            // `st_shndx` comes before `st_value`, `st_size` after it. Of the size of the original, the symbol would name
            // what other functions have after the copy.
            put(FileOffset(symbol.value_field.0 - 2), &index.to_le_bytes());
            if let Some(size) = copies.rest_of_fragment(new).filter(|_| symbol.size > 0) {
                put(FileOffset(symbol.value_field.0 + 8), &size.to_le_bytes());
            }
        }
    }
    if file.entry != Address(0) {
        put(ENTRY_FIELD, &copies.branch_target(file.entry).0.to_le_bytes());
    }
    Ok(())
}

fn redirect_code(
    analysis: &Analysis<'_>,
    copies: &Copies<'_>,
    evident: &Evident,
    output: &mut [u8],
) -> Result<()> {
    let mut write = |reference: &CodeReference, new: NewAddress| -> Result<()> {
        if new.0 == reference.target.0 {
            return Ok(());
        }
        let offset = analysis.code.file_offset(reference.place).0 as usize;
        let place = NewAddress(reference.place.0);
        rewrite(output, offset, reference, place, new).ok_or_else(|| out_of_reach(reference, new))
    };
    // Branches within a function are not listed with those that leave it.
    let bodies = copies.bodies.iter().filter(|body| evident.contains(body.range.start));
    for (_, step) in bodies.flat_map(|body| &body.walk.steps) {
        let Some(reference) = step.reference.filter(|reference| reference.usage == Use::Jump) else {
            continue;
        };
        let Form::Far(form) = reference.form else { continue };
        let (place, target) = (reference.place, reference.target);
        write(&CodeReference { place, target, form }, copies.branch_target(target))?;
    }
    let blocks = analysis.partition.blocks.iter().enumerate();
    for (index, block) in blocks.filter(|(_, block)| evident.contains(block.first_function)) {
        match &analysis.fields {
            CodeFields::X86_64(fields) => {
                for field in fields.of(index as u32..index as u32 + 1) {
                    let target = field.target(&analysis.code);
                    let new = match field.kind {
                        FieldKind::Jump | FieldKind::Call => copies.branch_target(target),
                        FieldKind::AddressOf => copies.kept_address(target),
                        FieldKind::ShortJump | FieldKind::Memory => continue,
                    };
                    let place = analysis.code.address(field.place);
                    let form = CodeForm::Relative32 { end: field.to_end };
                    write(&CodeReference { place, target, form }, new)?;
                }
            }
            CodeFields::Aarch64(references) => {
                for reference in references.of_atom(index, block.first_function) {
                    let new = copies.branch_target(reference.target);
                    let distance = new.distance_from(NewAddress(reference.place.0));
                    let is_reached = distance.wrapping_add(1 << 27) < 1 << 28;
                    if reference.form == CodeForm::Branch26 && is_reached {
                        write(&reference, new)?;
                    }
                }
            }
        }
    }
    Ok(())
}
