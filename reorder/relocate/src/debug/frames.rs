//! `.debug_frame`: starts and lengths of functions, in place. Source: DWARF 5, section 6.4.1.

use gimli::{
    BaseAddresses, CallFrameInstruction, CallFrameInstructionIter, DebugFrame, DebugFrameOffset,
    LittleEndian, Reader, UnwindSection, Vendor,
};

use super::patch::Patch;
use super::pieces::Pieces;
use super::sections::{DebugSection, Slice, cannot_update};
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::refusal::Refusal;

/// Where functions start, for each entry that moved.
///
/// # Errors
/// A damaged section, segmented or narrow addresses; R10 for an entry whose code went apart, and for one of code that
/// moved whose instructions state addresses or are not known.
pub fn move_frames(section: &DebugSection<'_>, pieces: &Pieces) -> Result<Vec<Patch>> {
    let whole = Slice::new(&section.bytes, LittleEndian);
    let mut rest = whole;
    let mut patches = Vec::new();
    while !rest.is_empty() {
        let start = rest.offset_from(whole);
        let broken = |error: gimli::Error| section.damaged(start, error);
        match read_entry(&mut rest, whole).map_err(broken)? {
            Entry::None => {}
            Entry::Common => check_common(section, start)?,
            Entry::Function { at, from, size } => {
                patches.extend(move_entry(section, start, (at, from, size), pieces)?);
            }
        }
    }
    Ok(patches)
}

/// What one entry says.
enum Entry {
    None,
    Common,
    /// Position of the start, the start, and the size after it.
    Function {
        at: usize,
        from: u64,
        size: u64,
    },
}

fn read_entry(rest: &mut Slice<'_>, whole: Slice<'_>) -> gimli::Result<Entry> {
    let (length, format) = rest.read_initial_length()?;
    let mut entry = rest.split(length)?;
    if entry.is_empty() {
        return Ok(Entry::None);
    }
    let common = entry.read_offset(format)?;
    let none = if format == gimli::Format::Dwarf64 { usize::MAX } else { u32::MAX as usize };
    if common == none {
        // From version 4 on, the entry states the width of addresses.
        if entry.read_u8()? >= 4 {
            entry.read_null_terminated_slice()?;
            let (address, segment) = (entry.read_u8()?, entry.read_u8()?);
            if (address, segment) != (8, 0) {
                return Err(gimli::Error::UnsupportedAddressSize(address));
            }
        }
        return Ok(Entry::Common);
    }
    let at = entry.offset_from(whole);
    Ok(Entry::Function { at, from: entry.read_u64()?, size: entry.read_u64()? })
}

fn move_entry(
    section: &DebugSection<'_>,
    start: usize,
    (at, from, size): (usize, u64, u64),
    pieces: &Pieces,
) -> Result<Vec<Patch>> {
    let end = from.saturating_add(size);
    if !pieces.is_code(from) || pieces.distance(from, end) == Some(0) {
        return Ok(Vec::new());
    }
    let parts = match size {
        0 => Vec::new(),
        _ => pieces.split(from, end),
    };
    let (new, new_size) = match parts.as_slice() {
        [] if size == 0 => (pieces.start(from), 0),
        [(new, new_end)] if pieces.start(from) == new.0 => (new.0, new_end.0.wrapping_sub(new.0)),
        _ => {
            let reason = format!("the entry at {start:#x} of .debug_frame describes code that went apart");
            return Err(cannot_update(reason).at(Address(from)).into());
        }
    };
    check_instructions(section, start).map_err(|refusal| refusal.at(Address(from)))?;
    Ok(vec![Patch { at, width: 8, value: new }, Patch { at: at + 8, width: 8, value: new_size }])
}

fn reader<'section>(section: &'section DebugSection<'_>) -> DebugFrame<Slice<'section>> {
    let mut frames = DebugFrame::new(&section.bytes, LittleEndian);
    // Its number stands for an instruction without operands on every processor.
    frames.set_vendor(Vendor::AArch64);
    frames
}

fn check_common(section: &DebugSection<'_>, start: usize) -> std::result::Result<(), Refusal> {
    let (frames, bases) = (reader(section), BaseAddresses::default());
    let common = frames.cie_from_offset(&bases, DebugFrameOffset(start));
    let common = common.map_err(|error| unknown(start, error))?;
    states_no_address(start, common.instructions(&frames, &bases))
}

fn check_instructions(section: &DebugSection<'_>, start: usize) -> std::result::Result<(), Refusal> {
    let (frames, bases) = (reader(section), BaseAddresses::default());
    let entry = frames.fde_from_offset(&bases, DebugFrameOffset(start), DebugFrame::cie_from_offset);
    let entry = entry.map_err(|error| unknown(start, error))?;
    states_no_address(start, entry.instructions(&frames, &bases))
}

fn states_no_address(
    start: usize,
    mut instructions: CallFrameInstructionIter<'_, Slice<'_>>,
) -> std::result::Result<(), Refusal> {
    while let Some(instruction) = instructions.next().map_err(|error| unknown(start, error))? {
        if matches!(instruction, CallFrameInstruction::SetLoc { .. }) {
            let reason = format!("the entry at {start:#x} of .debug_frame states addresses (DW_CFA_set_loc)");
            return Err(cannot_update(reason));
        }
    }
    Ok(())
}

fn unknown(start: usize, error: gimli::Error) -> Refusal {
    cannot_update(format!("the entry at {start:#x} of .debug_frame is not known: {error}"))
}
