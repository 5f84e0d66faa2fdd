//! Copies of functions in a segment of their own, for what cannot be moved in place.
//!
//! In: an image, its analysis, the functions that should come first. Out: the image with one more segment, whose copies run
//! at startup: branches, pointers and symbols lead to them. The originals keep their place, so references that are not
//! understood, such as those of a jump table, still lead to code that does the same with the same registers and frame.
//!
//! The file grows by the copies and the unwind tables. The table of program headers stays in its place.

mod aarch64;
mod aarch64_return;
mod bodies;
mod copies;
mod inside;
mod obstacle;
mod program_headers;
mod record;
mod references;
mod return_address;
mod sections;
mod step;
mod unwind;
mod walk;
mod x86_64;
mod x86_64_return;

use std::collections::BTreeSet;

pub use obstacle::Obstacle;
pub use program_headers::LostNote;
pub use sections::SUFFIX;

use copies::{Copies, filler};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::Result;
use reorder_base::hint::Hint;
use reorder_base::refusal::{Refusal, RefusalCode};
use reorder_image::elf::analysis::Analysis;
use reorder_image::elf::analysis::blocks::BlockIndex;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::kept_relocations::KeptTables;
use reorder_image::functions::{FunctionIndex, FunctionTable};
use sections::{Placed, Sections};

/// An image with copies.
#[derive(Clone, Debug)]
pub struct Cloned {
    /// The new image; the same bytes as before when no function was copied.
    pub bytes: Vec<u8>,
    /// Functions that have a copy, each with its place.
    pub copies: Vec<(Address, NewAddress)>,
    /// Bytes of all copies.
    pub copied_bytes: u64,
    /// Functions that have none, with the obstacle and the place that shows it.
    pub skipped: Vec<(Address, Obstacle, Address)>,
    /// A note that can no longer be found in a running program.
    pub lost: Option<LostNote>,
}

/// Copies the functions of `wanted`, in that order.
///
/// # Errors
/// Refusals (R8, R12, R13), malformed tables.
pub fn clone_functions(
    file: &ElfFile<'_>,
    functions: &FunctionTable<'_>,
    analysis: &Analysis<'_>,
    wanted: &[FunctionIndex],
) -> Result<Cloned> {
    check(file)?;
    let slot = program_headers::slot(file)?;
    let tables = unwind::OldTables::read(file)?;
    let (mut bodies, mut skipped) = bodies::collect(file, functions, analysis, wanted)?;
    let image = Image::new(file, functions, analysis, tables.as_ref())?;
    let mut followed = references::followed(file, analysis, &bodies);
    let mut rounds = 0;
    loop {
        let copies = Copies::new(&bodies, &followed, image.address, &analysis.code);
        let mut contents = Vec::with_capacity(bodies.len());
        let mut failed = Vec::new();
        for (index, body) in bodies.iter().enumerate() {
            match copies.bytes(index, analysis.code.bytes(body.range.clone())) {
                Ok(bytes) => contents.push(bytes),
                Err((obstacle, place)) => failed.push((index, obstacle, place)),
            }
        }
        if failed.is_empty() {
            let bytes = match bodies.is_empty() {
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
            return Ok(Cloned {
                bytes,
                copies: copies.of_functions(),
                copied_bytes: copies.end.distance_from(image.address),
                skipped: skipped
                    .into_iter()
                    .map(|(block, obstacle, place)| (original(block), obstacle, place))
                    .collect(),
                lost: slot.lost.filter(|_| !bodies.is_empty()),
            });
        }
        // Ends: each round leaves out at least one.
        let left_out: BTreeSet<BlockIndex> = failed.iter().map(|(index, ..)| bodies[*index].block).collect();
        skipped.extend(failed.iter().map(|&(index, obstacle, place)| (bodies[index].block, obstacle, place)));
        bodies.retain(|body| !left_out.contains(&body.block));
        let block_of = |address: Address| analysis.partition.block_containing(address);
        followed.retain(|address| block_of(*address).is_none_or(|block| !left_out.contains(&block)));
    }
}

/// Rounds of excluding addresses that new displacements look like; even one is rare.
const MAX_ROUNDS: usize = 4;

fn check(file: &ElfFile<'_>) -> std::result::Result<(), Refusal> {
    if !KeptTables::read(file).is_empty() {
        let what = "relocations that the linker kept would no longer describe the code that leads to copies";
        let otherwise = Some("strip the image");
        return Err(Refusal::new(RefusalCode::Copies, what, Hint::LeaveOutCopies { otherwise }));
    }
    Ok(())
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
    let full = || {
        let cure = Hint::LeaveOutCopies { otherwise: None };
        Refusal::new(RefusalCode::OutOfReach, "no addresses are left after the image", cure)
    };
    start.map(NewAddress).ok_or_else(full)
}

/// The parts of the output.
struct Image<'run> {
    file: &'run ElfFile<'run>,
    functions: &'run FunctionTable<'run>,
    analysis: &'run Analysis<'run>,
    tables: Option<&'run unwind::OldTables<'run>>,
    /// Where the segment of copies is in the file and in memory, and the page that it is aligned to.
    offset: u64,
    address: NewAddress,
    alignment: u64,
}

impl<'run> Image<'run> {
    fn new(
        file: &'run ElfFile<'run>,
        functions: &'run FunctionTable<'run>,
        analysis: &'run Analysis<'run>,
        tables: Option<&'run unwind::OldTables<'run>>,
    ) -> Result<Self> {
        let alignment = page(file);
        let offset = (file.bytes.len() as u64).next_multiple_of(alignment);
        let address = segment_address(file, alignment)?;
        Ok(Self { file, functions, analysis, tables, offset, address, alignment })
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
        let copied = contents.iter().zip(&copies.starts);
        let copied = copied.map(|(bytes, start)| (bytes.as_slice(), Address(start.0)));
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
        references::redirect(file, self.functions, self.analysis, copies, index, &mut output)?;
        output.resize(self.offset as usize, 0);
        let at = |address: NewAddress| self.offset + address.distance_from(self.address);
        for (bytes, start) in contents.iter().zip(&copies.starts) {
            output.resize(at(*start) as usize, filler(file.processor));
            output.extend_from_slice(bytes);
        }
        let size = output.len() as u64 - self.offset;
        let copied = Placed { offset: self.offset, address: self.address, size };
        let mut search = None;
        if let Some(tables) = self.tables {
            let search_address = NewAddress(self.address.plus(size).0.next_multiple_of(8));
            let search_end = search_address.plus(tables.search_size(copies));
            let frames_address = NewAddress(search_end.0.next_multiple_of(8));
            let new = tables.extended(copies, search_address, frames_address)?;
            search = Some((at(search_address), search_address, new.search.len() as u64));
            let placed =
                [(".eh_frame_hdr", search_address, new.search), (".eh_frame", frames_address, new.frames)];
            for (name, address, bytes) in placed {
                output.resize(at(address) as usize, 0);
                output.extend_from_slice(&bytes);
                let placed = Placed { offset: at(address), address, size: bytes.len() as u64 };
                sections.relocate(name.as_bytes(), placed);
            }
        }
        let size = output.len() as u64 - self.offset;
        let Self { offset, address, alignment, .. } = *self;
        let segment = program_headers::NewSegment { offset, address, size, alignment };
        program_headers::write(file, slot, &segment, search, &mut output);
        let record = |new: &[u8]| record::write(file.bytes, new, copies);
        sections.finish(self.functions, copies, copied, record, &mut output);
        Ok(output)
    }
}
