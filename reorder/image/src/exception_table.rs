//! Exception tables (`.gcc_except_table`, `__gcc_except_tab`): which code runs when an exception passes through a function.
//!
//! By default everything in a table counts from the function's start, so tables need no change when a function moves. Their
//! landing pads are entries of the function that no instruction names.
//! Source: the Itanium C++ ABI, "Exception Handling Tables", and LLVM's `EHStreamer`.

use crate::reader::Reader;
use reorder_base::address::Address;
use reorder_base::error::Result;
use reorder_base::refusal::{Refusal, RefusalCode};

const OMITTED: u8 = 0xff;
/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`.
const FIELD_RELATIVE_FOUR_BYTES: u8 = 0x1b;

/// Bytes of exception tables that may still be read.
///
/// Tables of an honest image do not overlap, so all of them together are shorter than the image. A hostile one could let
/// each of its functions name the same long table: then the work would grow with the square of the file's size.
#[derive(Clone, Copy, Debug)]
pub struct TableBudget(usize);

impl TableBudget {
    /// For all functions of an image of so many bytes.
    #[must_use]
    pub fn new(image_size: usize) -> Self {
        Self(image_size)
    }
}

/// One table, which begins at `address`.
#[derive(Clone, Copy, Debug)]
pub struct ExceptionTable<'data> {
    /// The table, with the rest of its section after it.
    pub bytes: &'data [u8],
    /// Where it lies in the file.
    pub origin: u64,
    /// Its address.
    pub address: Address,
    /// What images with an unknown form of table are refused with.
    pub refusal: RefusalCode,
}

/// Where a function continues after exceptions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandingPads {
    /// What the table counts from, if it names that itself instead of counting from the function's start.
    pub base: Option<Address>,
    /// The places, sorted, each once.
    pub addresses: Vec<Address>,
}

impl<'data> ExceptionTable<'data> {
    fn unknown(&self, what: String) -> Refusal {
        let cure = "build it with clang, rustc or GCC, whose tables count from their function";
        Refusal::new(self.refusal, what, cure).at(self.address)
    }

    /// What the table names as the base of its landing pads; `None` where it counts from the function's start.
    ///
    /// # Errors
    /// Refuses a base in an unknown form; reports tables that end too early.
    pub fn base(&self) -> Result<Option<Address>> {
        self.read_base(&mut Reader::new(self.bytes, self.origin, "exception table"))
    }

    fn read_base(&self, reader: &mut Reader<'data>) -> Result<Option<Address>> {
        match reader.byte()? {
            OMITTED => Ok(None),
            FIELD_RELATIVE_FOUR_BYTES => {
                let distance = i64::from(reader.word()? as i32);
                Ok(Some(self.address.plus(1).plus(distance as u64)))
            }
            encoding => {
                let what =
                    format!("an exception table names a base for its landing pads in the form {encoding:#x}");
                Err(self.unknown(what).into())
            }
        }
    }

    /// The landing pads of the function at `function_start`.
    ///
    /// # Errors
    /// Refuses a table with an unknown encoding, and one more table than the budget allows; reports malformed ones.
    pub fn landing_pads(&self, function_start: Address, budget: &mut TableBudget) -> Result<LandingPads> {
        let mut reader = Reader::new(self.bytes, self.origin, "exception table");
        let base = self.read_base(&mut reader)?;
        if reader.byte()? != OMITTED {
            reader.uleb()?;
        }
        let encoding = reader.byte()?;
        let size = usize::try_from(reader.uleb()?).unwrap_or(usize::MAX);
        let origin = self.origin + reader.position() as u64;
        budget.0 = budget.0.checked_sub(size).ok_or_else(|| {
            self.unknown("the functions' exception tables are longer than the image".into())
        })?;
        let mut sites = Reader::new(reader.take(size)?, origin, "exception table");
        let start = base.unwrap_or(function_start);
        let mut addresses = Vec::new();
        while !sites.rest().is_empty() {
            let mut field = || match encoding {
                0x01 => sites.uleb(),
                0x02 => sites.half().map(u64::from),
                0x03 => sites.word().map(u64::from),
                0x04 => sites.long(),
                _ => Err(self.unknown(format!("an exception table has the encoding {encoding:#x}")).into()),
            };
            let (_start, _length, pad) = (field()?, field()?, field()?);
            sites.uleb()?;
            if pad != 0 {
                addresses.push(start.plus(pad));
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        Ok(LandingPads { base, addresses })
    }
}
