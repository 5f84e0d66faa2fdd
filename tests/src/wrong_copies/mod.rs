//! Outputs with copies of fragments, made wrong in one place: what a defect of the writer could do, one kind after the other.
//!
//! In: an image for x86-64, the same with copies, a kind and a number. Out: a file that differs from the correct one, the same
//! for the same number. The places for a kind are read with `object` and `iced-x86`, without code of the verifier.

mod call_sites;
mod excuse;
mod kind;
mod places;

pub use kind::Kind;

use std::ops::Range;

use crate::change::{add, flip};
use crate::mutation_table::Original;
use crate::random::Random;
use call_sites::{Table, tables};
use places::{Copy, Listed, Part, Site, instructions, parts, read_record, unwind_entries};

/// Where copies are.
const COPIES: &str = ".text.reorder";
/// Their exception tables.
const EXCEPTIONS: &str = ".gcc_except_table.reorder";
/// Bytes of a symbol.
const SYMBOL_SIZE: usize = 24;
/// The record of copies.
const RECORD: &str = ".reorder.clones";

/// A correct output with copies.
#[derive(Clone, Debug)]
pub struct CopiedOutput {
    name: String,
    old: Vec<u8>,
    /// The same with copies.
    new: Vec<u8>,
    parts: Vec<Part>,
    /// By address.
    copies: Vec<Copy>,
    /// Bytes of copied jump tables in the file, ascending.
    jump_tables: Vec<Range<usize>>,
    /// Bytes of the original that differ.
    runs: Vec<Range<usize>>,
    /// Unwind entries of copies.
    entries: Vec<Range<usize>>,
    /// Exception tables of copies.
    tables: Vec<Table>,
    /// Positions of symbols of copies in the table of symbols.
    added_symbols: Range<usize>,
}

impl CopiedOutput {
    /// Finds the places that can be made wrong.
    ///
    /// # Errors
    /// When `new` is not an ELF image of 64 bits with copies.
    pub fn new(name: impl Into<String>, old: Vec<u8>, new: Vec<u8>) -> Result<Self, String> {
        let parts = parts(&new).map_err(|error| error.to_string())?;
        let named = |name: &str| parts.iter().find(|part| part.name == name);
        let missing = |what: &str| format!("no section {what}");
        let record = named(RECORD).ok_or_else(|| missing(RECORD))?;
        let home = named(COPIES).ok_or_else(|| missing(COPIES))?;
        let listed = read_record(&new, record, home).ok_or("a record of another form")?;
        let Listed { copies, jump_tables, runs } = listed;
        let mut entries = named(".eh_frame").map_or(Vec::new(), |table| unwind_entries(&new, table));
        let known = part_of(&old, ".eh_frame")?.map_or(0, |table| unwind_entries(&old, &table).len());
        entries.drain(..known.min(entries.len()));
        let tables = match (named(".eh_frame"), named(EXCEPTIONS)) {
            (Some(frames), Some(home)) => tables(&new, &entries, frames, home),
            _ => Vec::new(),
        };
        let symbols = |table: Option<&Part>| table.map_or(0, |table| table.bytes.len() / SYMBOL_SIZE);
        let added_symbols = symbols(part_of(&old, ".symtab")?.as_ref())..symbols(named(".symtab"));
        let name = name.into();
        Ok(Self { name, old, new, parts, copies, jump_tables, runs, entries, tables, added_symbols })
    }

    fn part(&self, name: &str) -> Option<&Part> {
        self.parts.iter().find(|part| part.name == name)
    }

    /// A random instruction of a copy that is meant, among those of a few copies.
    fn site(&self, random: &mut Random, is_meant: impl Fn(&Site) -> bool) -> Option<Site> {
        (0..32).find_map(|_| {
            let copy = random.of(&self.copies)?;
            let sites: Vec<Site> = instructions(&self.new, copy).into_iter().filter(&is_meant).collect();
            random.of(&sites).copied()
        })
    }

    fn call_site(&self, random: &mut Random) -> Option<[usize; 4]> {
        let table = random.of(&self.tables)?;
        random.of(&table.sites).copied()
    }

    /// Another target for a branch in a copy.
    fn redirect(
        &self,
        bytes: &mut [u8],
        random: &mut Random,
        is_meant: impl Fn(&Site) -> bool,
    ) -> Option<()> {
        let site = self.site(random, is_meant)?;
        self.lead_elsewhere(bytes, random, &site)
    }

    fn lead_elsewhere(&self, bytes: &mut [u8], random: &mut Random, site: &Site) -> Option<()> {
        let field = site.at + site.offsets.immediate_offset();
        let size = site.offsets.immediate_size();
        if size != 4 || random.below(3) == 0 {
            return add(bytes, field, size, 1 + random.below(16) as u64);
        }
        let copy = random.of(&self.copies)?;
        let target = if random.below(2) == 0 { copy.address } else { copy.original };
        let distance = target.wrapping_sub(site.instruction.next_ip()) as u32;
        bytes.get_mut(field..field + 4)?.copy_from_slice(&distance.to_le_bytes());
        Some(())
    }

    fn change_symbol(&self, bytes: &mut [u8], random: &mut Random, table: &str) -> Option<()> {
        let table = self.part(table)?.bytes.clone();
        let at = table.start + SYMBOL_SIZE * (1 + random.below(table.len() / SYMBOL_SIZE - 1)) + 8;
        match random.below(3) {
            0 => bytes.get_mut(at..at + 8)?.copy_from_slice(&random.of(&self.copies)?.address.to_le_bytes()),
            1 => bytes.get_mut(at..at + 8)?.copy_from_slice(&random.of(&self.copies)?.original.to_le_bytes()),
            _ => add(bytes, at, 8, 1 + random.below(64) as u64)?,
        }
        Some(())
    }

    /// What lies between copies, of code and of jump tables.
    fn holes(&self) -> Vec<Range<usize>> {
        let mut known: Vec<_> = self.copies.iter().map(|copy| copy.bytes.clone()).collect();
        known.extend_from_slice(&self.jump_tables);
        known.sort_unstable_by_key(|range| range.start);
        let between = |pair: &[Range<usize>]| pair[0].end..pair[1].start;
        known.windows(2).map(between).filter(|hole| !hole.is_empty()).collect()
    }
}

impl Original for CopiedOutput {
    type Kind = Kind;
    const KINDS: &'static [Kind] = &Kind::ALL;

    fn name(&self) -> &str {
        &self.name
    }

    fn pair(&self) -> (&[u8], &[u8]) {
        (&self.old, &self.new)
    }

    fn wrong(&self, kind: Kind, number: u64) -> Option<Vec<u8>> {
        let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (kind as u64) << 32);
        let random = &mut random;
        let mut bytes = self.new.clone();
        match kind {
            Kind::BranchTarget => self.redirect(&mut bytes, random, Site::is_jump)?,
            Kind::CallTarget => {
                self.redirect(&mut bytes, random, |site| site.instruction.is_call_near())?;
            }
            Kind::DataReference => {
                let site = self.site(random, |site| site.instruction.is_ip_rel_memory_operand())?;
                let field = site.at + site.offsets.displacement_offset();
                add(&mut bytes, field, site.offsets.displacement_size(), 1 + random.below(64) as u64)?;
            }
            Kind::BranchCondition => {
                let site = self.site(random, Site::is_conditional)?;
                let opcode = site.at + site.offsets.immediate_offset() - 1;
                *bytes.get_mut(opcode)? ^= 1 << random.below(4);
            }
            Kind::InstructionByte => {
                let copy = random.of(&self.copies)?;
                flip(&mut bytes, copy.bytes.clone(), random)?;
            }
            Kind::FinalJump => {
                let copy = random.of(&self.copies)?;
                let last = *instructions(&self.new, copy).last().filter(|site| site.is_jump())?;
                match random.below(3) {
                    0 => *bytes.get_mut(last.at)? ^= 1 << random.below(8),
                    1 => flip(&mut bytes, last.at..copy.bytes.end, random)?,
                    _ => self.lead_elsewhere(&mut bytes, random, &last)?,
                }
            }
            Kind::FragmentsSwapped => {
                let one = random.of(&self.copies)?;
                let same =
                    |other: &&Copy| other.bytes.len() == one.bytes.len() && other.address != one.address;
                let others: Vec<&Copy> = self.copies.iter().filter(same).collect();
                let other = random.of(&others)?;
                let (left, right) =
                    (self.new[one.bytes.clone()].to_vec(), self.new[other.bytes.clone()].to_vec());
                bytes[one.bytes.clone()].copy_from_slice(&right);
                bytes[other.bytes.clone()].copy_from_slice(&left);
            }
            Kind::RedirectedByte => {
                let run = random.of(&self.runs)?;
                flip(&mut bytes, run.clone(), random)?;
            }
            Kind::RedirectedToOther => {
                let words: Vec<&Range<usize>> = self.runs.iter().filter(|run| run.len() == 4).collect();
                let (one, other) = (random.of(&words)?.start, random.of(&words)?.start);
                let word = self.new[other..other + 4].to_vec();
                bytes[one..one + 4].copy_from_slice(&word);
            }
            Kind::UnwindStart | Kind::UnwindSize | Kind::UnwindParent => {
                let entry = random.of(&self.entries)?;
                let field = match kind {
                    Kind::UnwindParent => 4,
                    Kind::UnwindStart => 8,
                    _ => 12,
                };
                add(&mut bytes, entry.start + field, 4, 1 + random.below(64) as u64)?;
            }
            Kind::UnwindRow => {
                let entry = random.of(&self.entries)?;
                flip(&mut bytes, entry.start + 16..entry.end, random)?;
            }
            Kind::SearchRow => {
                let rows = self.part(".eh_frame_hdr")?.bytes.clone();
                flip(&mut bytes, rows.start + 8..rows.end, random)?;
            }
            Kind::CallSite => {
                let field = self.call_site(random)?[random.below(2)];
                flip(&mut bytes, field..field + 1, random)?;
            }
            Kind::LandingPad => {
                let field = self.call_site(random)?[2 + random.below(2)];
                flip(&mut bytes, field..field + 1, random)?;
            }
            Kind::ExceptionByte => flip(&mut bytes, self.part(EXCEPTIONS)?.bytes.clone(), random)?,
            Kind::Symbol => self.change_symbol(&mut bytes, random, ".symtab")?,
            Kind::CopyName => {
                let table = self.part(".symtab")?.bytes.start;
                let names: Vec<usize> =
                    self.added_symbols.clone().map(|number| table + number * SYMBOL_SIZE).collect();
                let (one, other) = (*random.of(&names)?, *random.of(&names)?);
                match random.below(3) {
                    0 => bytes[one..one + 4].copy_from_slice(&self.new[other..other + 4]),
                    1 => add(&mut bytes, one, 4, 1 + random.below(8) as u64)?,
                    _ => flip(&mut bytes, one + 4..one + SYMBOL_SIZE, random)?,
                }
            }
            Kind::DynamicSymbol => self.change_symbol(&mut bytes, random, ".dynsym")?,
            Kind::RecordNumber => {
                let record = self.part(RECORD)?.bytes.clone();
                let words = 3 + 4 * self.copies.len();
                let at = record.start + 8 * random.below(words);
                flip(&mut bytes, at..at + 8, random)?;
            }
            Kind::TableEntry => flip(&mut bytes, self.part(".rodata")?.bytes.clone(), random)?,
            Kind::CopiedTableEntry => {
                let table = random.of(&self.jump_tables)?;
                let at = table.start + random.below(table.len());
                match random.below(2) {
                    // What fills gaps, in place of an entry's byte.
                    0 => bytes[at] = [0x00, 0x90, 0xcc][random.below(3)],
                    _ => flip(&mut bytes, table.clone(), random)?,
                }
            }
            Kind::Filler => {
                let holes = self.holes();
                let hole = random.of(&holes)?;
                bytes[hole.start + random.below(hole.len())] =
                    [0x4c, 0x90, 0x00, 0xc3, 0xe9][random.below(5)];
            }
            Kind::Headers => {
                let end = 64 + usize::from(u16::from_le_bytes([self.new[0x38], self.new[0x39]])) * 56;
                flip(&mut bytes, 0..end, random)?;
            }
        }
        (bytes != self.new).then_some(bytes)
    }

    fn excuse(&self, wrong: &[u8]) -> Option<&'static str> {
        self.excuse_for(wrong)
    }
}

/// A section of an image.
fn part_of(bytes: &[u8], name: &str) -> Result<Option<Part>, String> {
    let parts = parts(bytes).map_err(|error| error.to_string())?;
    Ok(parts.into_iter().find(|part| part.name == name))
}
