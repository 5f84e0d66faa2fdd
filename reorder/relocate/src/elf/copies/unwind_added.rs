//! Unwind tables with the copies: all old entries, then entries for the copies, a new search table, and exception tables.
//! Source: Linux Standard Base 5.0, "Exception Frames"; DWARF 5, section 6.4.

use super::bodies::Body;
use super::exceptions::{ExceptionTable, Site};
use super::fragments::{Fragment, end_of};
use super::placed::{Copies, Placed};
use super::step::Step;
use super::unwind::{OldTables, Record, broken};
use crate::elf::unwind::{HEADER_SIZE, KNOWN_HEADER, ROW_SIZE};
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, Result};

/// What ends the entries.
const TERMINATOR: [u8; 4] = [0; 4];

/// An entry for a copy.
struct Added<'run> {
    /// That of the original.
    record: &'run Record,
    /// First address covered.
    start: NewAddress,
    /// Bytes of code covered.
    size: u32,
    /// Its instructions.
    program: Vec<u8>,
    /// The exception table of the original, and what of it is needed.
    exceptions: Option<(ExceptionTable<'run>, Vec<Site>)>,
}

impl Added<'_> {
    /// Bytes of the entry, which is padded with instructions that do nothing.
    fn entry_size(&self) -> usize {
        let head = self.record.instructions.start - self.record.range.start;
        (head + self.program.len()).next_multiple_of(8) + 4
    }
}

/// New contents of the sections.
pub(super) struct NewTables {
    /// `.eh_frame_hdr`.
    pub search: Vec<u8>,
    /// `.eh_frame`.
    pub frames: Vec<u8>,
    /// Where `.eh_frame` is.
    pub frames_address: NewAddress,
    /// The exception tables of copies.
    pub exceptions: Vec<u8>,
    /// Where they are.
    pub exceptions_address: NewAddress,
}

impl OldTables<'_> {
    /// Bytes of the search table with so many more rows.
    fn search_size(&self, added: usize) -> u64 {
        (HEADER_SIZE + (self.rows.len() + added) * ROW_SIZE) as u64
    }

    /// The entries that copies need, ascending by original.
    fn added(&self, copies: &Copies<'_>) -> Option<Vec<Added<'_>>> {
        let mut added = Vec::new();
        for (fragment, placed) in copies.fragments.iter().zip(&copies.placed) {
            let range = fragment.original(copies.bodies);
            let body = copies.bodies[fragment.body].range.start;
            for record in self.of_range(body, &range) {
                let program = self.program(record, fragment, placed, copies.bodies)?;
                let exceptions = match record.exceptions {
                    Some(field) => {
                        let table = self.table(record, field)?;
                        let sites = sites(&table, record, copies, fragment, placed);
                        Some((table, sites))
                    }
                    None => None,
                };
                let (start, size) = (placed.start, placed.arranged.size());
                added.push(Added { record, start, size, program, exceptions });
            }
        }
        Some(added)
    }

    /// The instructions of the entry of a copy, whose original has the entry `record`.
    fn program(
        &self,
        record: &Record,
        fragment: &Fragment,
        placed: &Placed,
        bodies: &[Body],
    ) -> Option<Vec<u8>> {
        let (steps, arranged) = (fragment.of(bodies), &placed.arranged);
        let (body, end) = (bodies[fragment.body].range.start, fragment.original(bodies).end);
        let rows = self.rows_of(record)?;
        let at = |place: Address| rows.at(place.distance_from(record.address));
        let place = |(offset, _): &(u32, Step)| body.plus(u64::from(*offset));
        let mut own: Vec<_> =
            steps.iter().zip(&arranged.offsets).map(|(step, copy)| (at(place(step)), *copy)).collect();
        // Jumps after the instructions stand for what they lead to, which may be in another function.
        let jump = arranged.has_jump.then_some((end, arranged.code_size()));
        let islands =
            arranged.islands.iter().filter_map(|target| Some((*target, arranged.island_to(*target)?)));
        let (inside, outside): (Vec<_>, Vec<_>) =
            jump.into_iter().chain(islands).partition(|(target, _)| record.covers(*target));
        own.extend(inside.into_iter().map(|(target, copy)| (at(target), copy)));
        // After a call or a trap nothing is expected to run, so nothing of what follows the function describes it.
        let runs_on = steps.last().is_some_and(|(_, step)| step.continues && !step.is_call && !step.is_trap);
        let others: Vec<_> = outside
            .into_iter()
            .filter(|_| runs_on)
            .filter_map(|(target, copy)| Some((self.rows_at(target, record)?, copy)))
            .collect();
        let mut all = own.clone();
        all.extend(others.iter().map(|((rows, distance), copy)| (rows.at(*distance), *copy)));
        for rows in [&mut all, &mut own] {
            rows.sort_by_key(|(_, copy)| *copy);
        }
        rows.program(&all).or_else(|| rows.program(&own))
    }

    /// The tables at their new places.
    ///
    /// # Errors
    /// Distances that do not fit, which a segment next to the image does not have.
    pub(super) fn extended(&self, copies: &Copies<'_>, search_address: NewAddress) -> Result<NewTables> {
        let added = self.added(copies).ok_or_else(|| broken(self.frames, 0))?;
        let search_end = search_address.plus(self.search_size(added.len()));
        let frames_address = NewAddress(search_end.0.next_multiple_of(8));
        let shift = frames_address.0.wrapping_sub(self.frames.address.0);
        let mut frames = self.bytes[..self.used].to_vec();
        let parents = self.commons.values().flat_map(|common| common.relative.iter().copied());
        for field in self.records.iter().flat_map(|record| record.relative.iter().copied()).chain(parents) {
            field.put_moved(self.bytes, &mut frames, field.place, shift);
        }
        let mut rows: Vec<(u64, u64)> =
            self.rows.iter().map(|(start, entry)| (start.0, entry.0.wrapping_add(shift))).collect();
        let frames_size =
            frames.len() + added.iter().map(Added::entry_size).sum::<usize>() + TERMINATOR.len();
        let exceptions_address = frames_address.plus(frames_size as u64);
        let mut exceptions = Vec::new();
        for entry in added {
            let (start, end) = (frames.len(), frames.len() + entry.entry_size());
            let Added { record, start: copy, size, program, exceptions: table } = entry;
            // Up to the instructions, with the length below.
            frames.extend_from_slice(&self.bytes[record.range.start..record.instructions.start]);
            put(&mut frames, start + 4, (start + 4 - record.parent) as u32);
            // The first field is the start; the targets of the others stay where they were.
            for (number, field) in record.relative.iter().enumerate() {
                let place = start + (field.place - record.range.start);
                let further = shift.wrapping_add((place - field.place) as u64);
                let target = if number == 0 { copy.0.wrapping_sub(record.address.0) } else { 0 };
                field.put_moved(self.bytes, &mut frames, place, further.wrapping_sub(target));
            }
            put(&mut frames, start + 12, size);
            if let (Some(field), Some((table, sites))) = (record.exceptions, table) {
                let address = exceptions_address.plus(exceptions.len() as u64);
                let place = start + (field.field.place - record.range.start);
                let from = if field.is_relative { frames_address.plus(place as u64).0 } else { 0 };
                field.field.put(&mut frames, place, address.0.wrapping_sub(from));
                exceptions
                    .extend(table.with_sites(&sites, address).ok_or_else(|| broken(self.frames, place))?);
                if exceptions.len() > self.file.bytes.len() {
                    return Err(broken(self.frames, record.range.start));
                }
            }
            frames.extend(program);
            frames.resize(end, 0);
            put(&mut frames, start, (end - start - 4) as u32);
            rows.push((copy.0, frames_address.0.wrapping_add(start as u64)));
        }
        frames.extend_from_slice(&TERMINATOR);
        rows.sort_by_key(|row| row.0);
        let mut search = KNOWN_HEADER.to_vec();
        let distance = |address: u64, from: u64| {
            i32::try_from(address.wrapping_sub(from) as i64)
                .map_err(|_| Error::malformed(self.frames.offset.0, "unwind tables too far apart"))
        };
        search.extend(distance(frames_address.0, search_address.plus(4).0)?.to_le_bytes());
        search.extend((rows.len() as u32).to_le_bytes());
        for (start, entry) in rows {
            search.extend(distance(start, search_address.0)?.to_le_bytes());
            search.extend(distance(entry, search_address.0)?.to_le_bytes());
        }
        Ok(NewTables { search, frames, frames_address, exceptions, exceptions_address })
    }
}

/// What `table`, which is that of `record`, says of the instructions of a copy.
fn sites(
    table: &ExceptionTable<'_>,
    record: &Record,
    copies: &Copies<'_>,
    fragment: &Fragment,
    placed: &Placed,
) -> Vec<Site> {
    let body = copies.bodies[fragment.body].range.start;
    let mut sites: Vec<(Site, Site)> = Vec::new();
    for (step, copy) in fragment.of(copies.bodies).iter().zip(placed.arranged.offsets.windows(2)) {
        // Unwinding looks for the byte before the return address.
        let last = body.plus(u64::from(end_of(step) - 1));
        let Some(known) = table.site(last.distance_from(record.address)) else { continue };
        let (start, end) = (u64::from(copy[0]), u64::from(copy[1]));
        match sites.last_mut() {
            Some((original, site)) if *original == known && site.start + site.size == start => {
                site.size = end - site.start;
            }
            _ => sites.push((known, known.at(start, end - start))),
        }
    }
    sites.into_iter().map(|(_, site)| site).collect()
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    if let Some(field) = bytes.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}
