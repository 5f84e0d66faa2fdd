//! Copies of code in a segment of their own: of whole functions, or of the parts of them that run.
//!
//! In: an image, its analysis, the fragments that startups need in the order that they should have. Out: the image with one
//! more segment, whose copies run at startup: branches, pointers and symbols lead to them. The originals keep their place, so
//! references that are not understood, such as those of a jump table, still lead to code that does the same with the same
//! registers and frame.
//!
//! The file grows by the copies and the unwind tables. The table of program headers stays in its place.

mod aarch64;
mod aarch64_return;
mod appended;
mod application;
mod arranged;
mod assumed;
mod bodies;
mod candidates;
mod exceptions;
mod fragments;
mod inside;
mod obstacle;
mod own_convention;
mod placed;
mod placed_tables;
mod places;
mod program_headers;
mod reader;
mod record;
mod references;
mod return_address;
mod rows;
mod sections;
mod split_bytes;
mod step;
mod tables;
mod tables_of_addresses;
mod unwind;
mod unwind_added;
mod walk;
mod x86_64;
mod x86_64_return;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

pub use assumed::UnlistedPointers;
pub use candidates::{Candidate, Candidates, Wanted};
pub use obstacle::Obstacle;
pub use program_headers::LostNote;
pub use sections::KeptRelocations;

use crate::debug::copies::describe;
use crate::debug::sections::Edits;
use crate::debug::{DebugPolicy, has_debug};
use crate::elf::code::filler;
use assumed::Assumed;
use bodies::Body;
use fragments::Fragment;
use placed::Copies;
use references::Evident;
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::Result;
use reorder_base::hint::Hint;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::obligations::COPIES;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use sections::{EXCEPTIONS, Placed, Sections, kept_relocations};

/// An image with copies.
#[derive(Clone, Debug)]
pub struct Copied {
    /// The new image; the same bytes as before when nothing was copied.
    pub bytes: Vec<u8>,
    /// Where the copies are: original address, bytes of the original, place of the copy; in the order of the copies.
    pub copies: Vec<(Address, u64, NewAddress)>,
    /// Functions that have a copy, whole or in part.
    pub functions: usize,
    /// Bytes of all copies.
    pub copied_bytes: u64,
    /// Functions that have none, with the obstacle and the place that shows it.
    pub skipped: Vec<(Address, Obstacle, Address)>,
    /// A note that can no longer be found in a running program.
    pub lost: Option<LostNote>,
    /// The image is Bun without an application; `bun build --compile` would write one over the copies.
    pub awaits_application: bool,
    /// Names of the sections of relocations that were left out.
    pub left_out: Vec<String>,
    /// What was taken for pointers to functions with copies.
    pub assumed: AssumedPointers,
}

/// Numbers that were taken for pointers, because nothing lists pointers and the user permits it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct AssumedPointers {
    /// Functions that are known by their copies.
    pub functions: usize,
    /// Words of data that lead to them.
    pub words: usize,
    /// Operands of instructions that do.
    pub operands: usize,
}

/// Copies those `candidates` whose numbers are in `order`, in that order.
///
/// # Errors
/// Refusals (R8, R12, R13), malformed tables.
pub fn copy(
    file: &ElfFile<'_>,
    functions: &ElfFunctions<'_>,
    analysis: &Analysis<'_>,
    candidates: Candidates,
    debug: DebugPolicy,
    order: impl IntoIterator<Item = usize>,
) -> Result<Copied> {
    let slot = program_headers::slot(file)?;
    let unwind = unwind::OldTables::read(file)?;
    let Candidates { bodies, fragments, tables, mut skipped, unlisted, evident } = candidates;
    let mut fragments: Vec<Fragment> =
        order.into_iter().filter_map(|number| fragments.get(number).cloned()).collect();
    let (mut followed, assumed) = references::followed(file, analysis, &bodies, &evident, unlisted)?;
    let image = Image::new(file, functions, analysis, (unwind.as_ref(), &assumed, &evident), debug)?;
    let originals = originals(&bodies, &fragments);
    followed.retain(|start| is_inside(&originals, *start));
    let mut rounds = 0;
    loop {
        let pieces = (bodies.as_slice(), fragments.as_slice(), tables.as_slice());
        let made = Copies::new(pieces, &followed, image.address, &analysis.code);
        let made = made.and_then(|copies| Ok((contents(&copies, analysis, &assumed)?, copies)));
        let (contents, copies) = match made {
            Ok(made) => made,
            // Ends: each round leaves out a function.
            Err((body, obstacle, place)) => {
                skipped.push((bodies[body].block, obstacle, place));
                fragments.retain(|fragment| fragment.body != body);
                let range = bodies[body].range.clone();
                followed.retain(|address| !range.contains(address));
                continue;
            }
        };
        let bytes = match fragments.is_empty() {
            true => file.bytes.to_vec(),
            false => image.assemble(&copies, slot, &contents)?,
        };
        // A new displacement may look like the address of an original from the middle of an instruction.
        let kept = image.still_formed(&copies, &contents, &bytes);
        if !kept.is_empty() {
            rounds += 1;
            // Keeping every address at the original is always right.
            let is_last = rounds == MAX_ROUNDS;
            followed.retain(|address| !is_last && !kept.contains(address));
            continue;
        }
        let original = |block| analysis.partition.block(block).start;
        let in_part: BTreeSet<usize> = fragments.iter().map(|fragment| fragment.body).collect();
        let copied = copies.fragments.iter().zip(&copies.placed).map(|(fragment, placed)| {
            let range = fragment.original(&bodies);
            (range.start, range.end.distance_from(range.start), placed.start)
        });
        let left_out = kept_relocations(file).map(|section| section.display_name().to_string());
        return Ok(Copied {
            bytes,
            copies: copied.collect(),
            functions: in_part.len(),
            copied_bytes: copies.end.distance_from(image.address),
            skipped: skipped
                .into_iter()
                .map(|(block, obstacle, place)| (original(block), obstacle, place))
                .collect(),
            lost: slot.lost.filter(|_| !fragments.is_empty()),
            awaits_application: !fragments.is_empty() && application::is_awaited(file),
            left_out: left_out.filter(|_| !fragments.is_empty()).collect(),
            assumed: assumed.of(&followed).summary(),
        });
    }
}

/// Where the originals of `fragments` are, ascending.
fn originals(bodies: &[Body], fragments: &[Fragment]) -> Vec<Range<Address>> {
    let mut originals: Vec<_> = fragments.iter().map(|fragment| fragment.original(bodies)).collect();
    originals.sort_unstable_by_key(|range| range.start);
    originals
}

/// Whether one of `ranges`, which ascend, contains `address`.
fn is_inside(ranges: &[Range<Address>], address: Address) -> bool {
    let after = ranges.partition_point(|range| range.start <= address);
    ranges[..after].last().is_some_and(|range| address < range.end)
}

/// The bytes of all copies.
fn contents(
    copies: &Copies<'_>,
    analysis: &Analysis<'_>,
    assumed: &Assumed,
) -> std::result::Result<Vec<Vec<u8>>, (usize, Obstacle, Address)> {
    let bytes = |(index, fragment): (usize, &Fragment)| {
        let code = analysis.code.bytes(copies.bodies[fragment.body].range.clone());
        let bytes = copies.bytes(index, code).map_err(|(obstacle, place)| (fragment.body, obstacle, place));
        let mut bytes = bytes?;
        let led = copies.lead_operands(index, assumed, &mut bytes);
        let led = led.and_then(|()| copies.lead_table_reads(index, &mut bytes));
        led.map_err(|(obstacle, place)| (fragment.body, obstacle, place))?;
        Ok(bytes)
    };
    copies.fragments.iter().enumerate().map(bytes).collect()
}

/// Rounds of excluding addresses that new displacements look like; even one is rare.
const MAX_ROUNDS: usize = 4;

/// The file without the copies that it lists; `None` if it has none.
///
/// # Errors
/// Refuses (R13) an image with copies whose list is missing or damaged.
pub fn restored(file: &ElfFile<'_>) -> std::result::Result<Option<Vec<u8>>, Refusal> {
    if file.section(COPIES.as_bytes()).is_none() {
        return Ok(None);
    }
    record::restored(file).map(Some).ok_or_else(no_way_back)
}

/// The refusal of an image with copies that its list does not lead away from.
pub(crate) fn no_way_back() -> Refusal {
    let what =
        "the image has copies of functions, and its list of them does not lead back to the image without";
    Refusal::new(RefusalCode::Copies, what, Hint::ImageWithoutCopies)
}

fn check(file: &ElfFile<'_>, relocations: KeptRelocations) -> std::result::Result<(), Refusal> {
    if relocations == KeptRelocations::Refuse && kept_relocations(file).next().is_some() {
        let what = "relocations that the linker kept would no longer describe the code that leads to copies";
        return Err(Refusal::new(RefusalCode::Copies, what, Hint::LeaveOutRelocations));
    }
    appended::check(file)
}

/// The largest page that a segment is aligned to.
fn page(file: &ElfFile<'_>) -> u64 {
    let loaded = file.segments.iter().filter(|segment| segment.is_load());
    let asked = loaded.map(|segment| segment.alignment).max().unwrap_or(0);
    if asked.is_power_of_two() { asked.clamp(0x1000, 0x1_0000) } else { 0x1000 }
}

/// The first page after the image.
fn segment_address(file: &ElfFile<'_>, alignment: u64) -> std::result::Result<NewAddress, Refusal> {
    let loaded = file.segments.iter().filter(|segment| segment.is_load());
    let end = loaded.map(|segment| segment.address.0.saturating_add(segment.memory_size)).max().unwrap_or(0);
    let start = end.checked_next_multiple_of(alignment).filter(|start| start.checked_add(1 << 32).is_some());
    start.map(NewAddress).ok_or_else(no_addresses_left)
}

fn no_addresses_left() -> Refusal {
    let cure = Hint::LeaveOutCopies { otherwise: None };
    Refusal::new(RefusalCode::OutOfReach, "no addresses are left after the image", cure)
}

/// The parts of the output.
struct Image<'run> {
    file: &'run ElfFile<'run>,
    functions: &'run ElfFunctions<'run>,
    analysis: &'run Analysis<'run>,
    tables: Option<&'run unwind::OldTables<'run>>,
    assumed: &'run Assumed,
    evident: &'run Evident,
    /// Where the segment of copies is in the file and in memory, and the page that it is aligned to.
    offset: u64,
    address: NewAddress,
    alignment: u64,
    debug: DebugPolicy,
}

impl<'run> Image<'run> {
    fn new(
        file: &'run ElfFile<'run>,
        functions: &'run ElfFunctions<'run>,
        analysis: &'run Analysis<'run>,
        (tables, assumed, evident): (Option<&'run unwind::OldTables<'run>>, &'run Assumed, &'run Evident),
        debug: DebugPolicy,
    ) -> Result<Self> {
        let alignment = page(file);
        let offset = (file.bytes.len() as u64).next_multiple_of(alignment);
        let address = segment_address(file, alignment)?;
        Ok(Self { file, functions, analysis, tables, assumed, evident, offset, address, alignment, debug })
    }

    /// Originals whose addresses code of the output may form although they follow the copies.
    fn still_formed(&self, copies: &Copies<'_>, contents: &[Vec<u8>], output: &[u8]) -> BTreeSet<Address> {
        let code = self
            .file
            .sections
            .iter()
            .filter(|section| section.is_loaded() && section.is_executable() && section.has_bytes());
        let outside = code.filter_map(|section| {
            let start = section.offset.0 as usize;
            Some((output.get(start..start + section.size as usize)?, section.address))
        });
        let copied = contents.iter().zip(&copies.placed);
        let copied = copied.map(|(bytes, placed)| (bytes.as_slice(), Address(placed.start.0)));
        let formed = outside.chain(copied).flat_map(|(code, address)| {
            references::formed_by_code(self.file.processor, code, address, copies.followed)
        });
        formed.map(|(target, _)| target).collect()
    }

    fn assemble(
        &self,
        copies: &Copies<'_>,
        slot: program_headers::Slot,
        contents: &[Vec<u8>],
    ) -> Result<Vec<u8>> {
        let file = self.file;
        let mut sections = Sections::new(file)?;
        let mut output = file.bytes.to_vec();
        let index = sections.index_of_copies();
        let listed = (self.functions, self.analysis, self.assumed);
        references::redirect(file, listed, self.evident, copies, index, &mut output)?;
        output.resize(self.offset as usize, 0);
        let at = |address: NewAddress| self.offset + address.distance_from(self.address);
        let code = contents.iter().zip(&copies.placed);
        let code = code.map(|(bytes, placed)| Ok((placed.start, Cow::Borrowed(bytes.as_slice()))));
        let tables = copies.tables.iter().map(|table| {
            let bytes = copies.table_bytes(table).ok_or_else(no_addresses_left)?;
            Ok((table.start, Cow::Owned(bytes)))
        });
        let mut pieces = code.chain(tables).collect::<Result<Vec<(NewAddress, Cow<'_, [u8]>)>>>()?;
        pieces.sort_by_key(|(start, _)| *start);
        for (start, bytes) in pieces {
            output.resize(at(start) as usize, filler(file.processor));
            output.extend_from_slice(&bytes);
        }
        let size = output.len() as u64 - self.offset;
        let copied = Placed { offset: self.offset, address: self.address, size };
        let (mut search, mut exceptions) = (None, None);
        if let Some(tables) = self.tables {
            let search_address = NewAddress(self.address.plus(size).0.next_multiple_of(8));
            let new = tables.extended(copies, search_address)?;
            search = Some((at(search_address), search_address, new.search.len() as u64));
            let placed = [
                (".eh_frame_hdr", search_address, new.search),
                (".eh_frame", new.frames_address, new.frames),
                (EXCEPTIONS, new.exceptions_address, new.exceptions),
            ];
            for (name, address, bytes) in placed.iter().filter(|(.., bytes)| !bytes.is_empty()) {
                output.resize(at(*address) as usize, 0);
                output.extend_from_slice(bytes);
                let placed = Placed { offset: at(*address), address: *address, size: bytes.len() as u64 };
                match *name {
                    EXCEPTIONS => exceptions = Some(placed),
                    name => sections.relocate(name.as_bytes(), placed),
                }
            }
        }
        let size = output.len() as u64 - self.offset;
        let Self { offset, address, alignment, .. } = *self;
        let segment = program_headers::NewSegment { offset, address, size, alignment };
        program_headers::write(file, slot, &segment, search, &mut output);
        let record = |new: &[u8]| record::write(file.bytes, new, copies, &self.functions.found);
        let debug = self.debug_information(copies)?;
        sections.finish(&self.functions.table, copies, (copied, exceptions), debug, record, &mut output);
        Ok(output)
    }

    /// Debug information with what it says of the copies.
    fn debug_information(&self, copies: &Copies<'_>) -> Result<Edits> {
        if self.debug != DebugPolicy::Update || !has_debug(self.file) {
            return Ok(Edits::default());
        }
        let code = self.file.sections.iter().filter(|section| section.is_loaded() && section.is_executable());
        let mut code: Vec<Range<Address>> =
            code.map(|section| section.address..section.address.plus(section.size)).collect();
        code.sort_unstable_by_key(|range| range.start);
        describe(self.file, &copies.described(), code)
    }
}
