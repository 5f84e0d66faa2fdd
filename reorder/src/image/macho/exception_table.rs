//! Exception tables (`__gcc_except_tab`): which code runs when an exception passes through a function.
//!
//! Everything in a table counts from the function's start, so that tables need no change when a function moves; their
//! landing pads are entries of the function that no instruction names.
//! Source: the Itanium C++ ABI, "Exception Handling Tables", and LLVM's `EHStreamer`.

use super::file::MachOFile;
use super::reader::Reader;
use crate::address::Address;
use crate::error::{Error, Result};
use crate::image::refusal::{Refusal, RefusalCode};

const OMITTED: u8 = 0xff;

/// Bytes of exception tables that may still be read.
///
/// Tables of an honest image do not overlap, so all of them together are shorter than the image. A hostile one could let
/// each of its functions name the same long table: then the work would grow with the square of the file's size.
#[derive(Clone, Copy, Debug)]
pub struct TableBudget(usize);

impl TableBudget {
    /// For all functions of `file`.
    #[must_use]
    pub fn of(file: &MachOFile<'_>) -> Self {
        Self(file.bytes.len())
    }
}

/// Where the function at `function_start` goes on after exceptions, sorted, each once.
///
/// # Errors
/// Refuses (M11) a table whose landing pads count from elsewhere, or with an unknown encoding, and one more table than the
/// budget allows; reports malformed ones.
pub fn landing_pads(
    file: &MachOFile<'_>,
    table: Address,
    function_start: Address,
    budget: &mut TableBudget,
) -> Result<Vec<Address>> {
    let Some(section) = file.section_at(table).filter(|section| section.has_bytes()) else {
        return Err(Error::malformed(0, format!("the exception table at {table} lies in no section")));
    };
    let start = table.distance_from(section.address) as usize;
    let bytes = &file.section_bytes(section)[start..];
    let mut reader = Reader::new(bytes, (section.offset + start) as u64, "exception table");
    let unknown = |what: String| {
        let cure =
            "build it with clang, rustc or GCC for macOS, which write tables that count from the function";
        Refusal::new(RefusalCode::M11, what, cure).at(table)
    };
    if reader.byte()? != OMITTED {
        return Err(unknown("an exception table counts from elsewhere than its function".into()).into());
    }
    if reader.byte()? != OMITTED {
        reader.uleb()?;
    }
    let encoding = reader.byte()?;
    let size = usize::try_from(reader.uleb()?).unwrap_or(usize::MAX);
    let origin = (section.offset + start + reader.position()) as u64;
    budget.0 = budget
        .0
        .checked_sub(size)
        .ok_or_else(|| unknown("the functions' exception tables are longer than the image".into()))?;
    let mut sites = Reader::new(reader.take(size)?, origin, "exception table");
    let mut pads = Vec::new();
    while !sites.rest().is_empty() {
        let mut field = || match encoding {
            0x01 => sites.uleb(),
            0x02 => sites.half().map(u64::from),
            0x03 => sites.word().map(u64::from),
            0x04 => sites.long(),
            _ => Err(unknown(format!("an exception table has the encoding {encoding:#x}")).into()),
        };
        let (_start, _length, pad) = (field()?, field()?, field()?);
        sites.uleb()?;
        if pad != 0 {
            pads.push(function_start.plus(pad));
        }
    }
    pads.sort_unstable();
    pads.dedup();
    Ok(pads)
}
