//! Rebase opcodes of `LC_DYLD_INFO`: a program for a small state machine that walks over the slots.
//!
//! Source: `mach-o/loader.h`, `REBASE_OPCODE_*`, and how dyld runs them.

use super::{SLOT_SIZE, unknown};
use crate::macho::file::MachOFile;
use crate::macho::load_command::LinkEditRange;
use crate::macho::reference::{DataForm, DataReference};
use crate::macho::section::Segment;
use crate::reader::Reader;
use reorder_base::address::Address;
use reorder_base::error::Result;

const TYPE_POINTER: u8 = 1;

/// The slots in the order of the opcodes.
pub(super) fn slots(file: &MachOFile<'_>, range: &LinkEditRange) -> Result<Vec<DataReference>> {
    let bytes = &file.bytes[range.offset..range.offset + range.size];
    let mut machine = Machine {
        file,
        reader: Reader::new(bytes, range.offset as u64, "list of rebase opcodes"),
        segment: None,
        offset: 0,
        is_pointer: false,
        slots: Vec::new(),
    };
    while !machine.reader.rest().is_empty() && machine.step()? {}
    Ok(machine.slots)
}

struct Machine<'file, 'data> {
    file: &'file MachOFile<'data>,
    reader: Reader<'data>,
    segment: Option<Segment<'data>>,
    /// Relative to the segment's start. Wraps, as in the loader: steps back are steps by huge numbers.
    offset: u64,
    is_pointer: bool,
    slots: Vec<DataReference>,
}

impl Machine<'_, '_> {
    /// Runs one opcode; false at the end of the program.
    fn step(&mut self) -> Result<bool> {
        let byte = self.reader.byte()?;
        let immediate = byte & 0xf;
        match byte >> 4 {
            0 => return Ok(false),
            1 if immediate == TYPE_POINTER => self.is_pointer = true,
            1 => return Err(unknown(format!("rebase opcodes of type {immediate}")).into()),
            2 => {
                let segment = self.file.segments.get(usize::from(immediate)).copied();
                self.segment =
                    Some(segment.ok_or_else(|| self.reader.error("names a segment that does not exist"))?);
                self.offset = self.reader.uleb()?;
            }
            3 => self.offset = self.offset.wrapping_add(self.reader.uleb()?),
            4 => self.offset = self.offset.wrapping_add(u64::from(immediate) * SLOT_SIZE),
            5 => self.run(u64::from(immediate), 0)?,
            6 => {
                let count = self.reader.uleb()?;
                self.run(count, 0)?;
            }
            7 => {
                let skip = self.reader.uleb()?;
                self.run(1, skip)?;
            }
            8 => {
                let (count, skip) = (self.reader.uleb()?, self.reader.uleb()?);
                self.run(count, skip)?;
            }
            operation => return Err(unknown(format!("the unknown rebase opcode {operation:#x}")).into()),
        }
        Ok(true)
    }

    /// Rebases `count` slots, each `skip` bytes after the one before.
    fn run(&mut self, count: u64, skip: u64) -> Result<()> {
        let Some(segment) = self.segment.filter(|_| self.is_pointer) else {
            return Err(self.reader.error("rebases before it has chosen a type and a segment"));
        };
        // Slots do not overlap, so a longer list is malformed; a count of 2^60 must not be run.
        let most = self.file.bytes.len() as u64 / SLOT_SIZE;
        if count > most || self.slots.len() as u64 > most {
            return Err(self.reader.error("has more slots than fit into the file"));
        }
        let contents = &self.file.bytes[segment.offset..segment.offset + segment.file_size];
        for _ in 0..count {
            let slot =
                usize::try_from(self.offset).ok().and_then(|offset| contents.get(offset..)?.first_chunk());
            let Some(value) = slot else {
                return Err(self.reader.error("rebases a slot outside its segment's contents"));
            };
            self.slots.push(DataReference {
                place: segment.address.plus(self.offset),
                target: Address(u64::from_le_bytes(*value)),
                form: DataForm::Pointer,
            });
            self.offset = self.offset.wrapping_add(SLOT_SIZE).wrapping_add(skip);
        }
        Ok(())
    }
}
