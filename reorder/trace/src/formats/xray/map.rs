//! The section `xray_instr_map` of an instrumented image: which function has which number.
//!
//! One entry for each sled, a place where a call can be patched in (`XRaySledEntry` in `xray_interface_internal.h`):
//!
//! | 64-bit | 32-bit | |
//! |---|---|---|
//! | 0 | 0 | address of the sled |
//! | 8 | 4 | address of the function |
//! | 16 | 8 | what the sled is for |
//! | 17 | 9 | whether it is always instrumented |
//! | 18 | 10 | version |
//!
//! From version 2 on, addresses are distances from their own fields. Before, they are absolute: in position-independent
//! images the section holds zeros, and relocations hold the values. Functions are numbered from 1 in the order of their
//! first sleds. `xray_fn_idx` has one entry for each function, which confirms the numbering.

use std::collections::HashMap;

use object::{Object as _, ObjectKind, ObjectSection as _, ObjectSymbol as _, RelocationTarget};

use crate::cursor::{ByteOrder, Cursor};
use crate::{CompanionImage, ImageIdentity, Location, Name};
use reorder_base::address::Address;
use reorder_base::error::Error;

const SECTION: &str = "xray_instr_map";
const INDEX: &str = "xray_fn_idx";

/// One entry of an index has two words.
const INDEX_ENTRY: [u64; 2] = [8, 16];

/// The functions of one image by number.
pub(super) struct Map<'data> {
    image: CompanionImage<'data>,
    functions: Vec<Place>,
    /// Names of the functions of files that are not linked.
    names: HashMap<(usize, u64), &'data [u8]>,
    /// Whether it is a program, not a library.
    pub(super) is_program: bool,
    /// Contradictions between the map and the index.
    pub(super) doubt: Option<String>,
}

/// Section, for files that are not linked, and address.
type Place = (Option<usize>, u64);

impl<'data> Map<'data> {
    /// `None` for images without a map.
    ///
    /// # Errors
    /// The map is malformed or has no contents in this file.
    pub(super) fn of(image: CompanionImage<'data>) -> Option<Result<Self, Error>> {
        image.object.sections().any(|section| section.name() == Ok(SECTION)).then(|| Self::read(image))
    }

    fn read(image: CompanionImage<'data>) -> Result<Self, Error> {
        let mut functions: Vec<Place> = Vec::new();
        let relative = relative_relocations(&image.object);
        for section in image.object.sections().filter(|section| section.name() == Ok(SECTION)) {
            let bytes = section.data().unwrap_or_default();
            if bytes.is_empty() && section.size() > 0 {
                return Err(Error::malformed(0, format!("the section {SECTION} has no contents here"))
                    .with_hint("give the program itself, not a file with its debug information"));
            }
            let relocations = match image.object.kind() {
                ObjectKind::Relocatable => Relocations::Of(section_relocations(&image.object, &section)),
                _ => Relocations::Dynamic(&relative),
            };
            let offset = section.file_range().map_or(0, |(start, _)| start);
            let sleds =
                Sleds { bytes, address: section.address(), offset, object: &image.object, relocations };
            sleds.append_functions(&mut functions)?;
        }
        let doubt = doubt(&image, functions.len() as u64);
        let names = names(&image.object);
        Ok(Self { is_program: is_program(&image.object), image, functions, names, doubt })
    }

    /// The highest number.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.functions.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn identity(&self) -> ImageIdentity {
        match self.image.object.kind() {
            // Linking gives its functions other addresses.
            ObjectKind::Relocatable => ImageIdentity::default(),
            _ => self.image.identity.clone(),
        }
    }

    pub(super) fn path(&self) -> String {
        self.image.identity.to_string()
    }

    /// Address of the function with this number, and its name.
    pub(super) fn function(&self, number: u32) -> Option<(Location, Option<Name>)> {
        let (section, address) = *self.functions.get((number as usize).checked_sub(1)?)?;
        let Some(section) = section else {
            let address = Address(address);
            return Some((Location::Image(address), self.image.name_at(address)));
        };
        self.names.get(&(section, address)).map(|&name| (Location::Name(name.into()), None))
    }
}

/// Name of the first symbol at each place; empty for linked images.
fn names<'data>(object: &object::File<'data>) -> HashMap<(usize, u64), &'data [u8]> {
    let mut names = HashMap::new();
    if object.kind() == ObjectKind::Relocatable {
        for symbol in object.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text) {
            if let (Some(section), Ok(name)) = (symbol.section_index(), symbol.name_bytes()) {
                names.entry((section.0, symbol.address())).or_insert(name);
            }
        }
    }
    names
}

/// Whether the image can be executed as a program.
fn is_program(object: &object::File<'_>) -> bool {
    let starts = |name: &[u8]| [&b"main"[..], b"_main", b"_start"].contains(&name);
    match object.kind() {
        ObjectKind::Executable | ObjectKind::Relocatable => true,
        _ => {
            object.section_by_name(".interp").is_some()
                || object
                    .symbols()
                    .any(|symbol| symbol.is_definition() && symbol.name_bytes().is_ok_and(starts))
        }
    }
}

/// Where the index contradicts the map.
fn doubt(image: &CompanionImage<'_>, functions: u64) -> Option<String> {
    let size = image.section(INDEX)?.size;
    let listed = size / INDEX_ENTRY[usize::from(image.object.is_64())];
    (image.object.kind() != ObjectKind::Relocatable && listed != functions)
        .then(|| format!("{}: {INDEX} lists {listed} functions, {SECTION} has {functions}", image.identity))
}

/// The value that the loader writes at each address that it relocates.
fn relative_relocations(object: &object::File<'_>) -> HashMap<u64, u64> {
    let relocations = object.dynamic_relocations().into_iter().flatten();
    relocations
        .filter(|(_, relocation)| matches!(relocation.target(), RelocationTarget::Absolute))
        .map(|(address, relocation)| (address, relocation.addend().cast_unsigned()))
        .collect()
}

/// The target of each field of a section in an unlinked file.
fn section_relocations<'data>(
    object: &object::File<'data>,
    section: &object::Section<'data, '_>,
) -> HashMap<u64, Place> {
    let mut places = HashMap::new();
    for (offset, relocation) in section.relocations() {
        let (target, start) = match relocation.target() {
            RelocationTarget::Symbol(index) => match object.symbol_by_index(index) {
                Ok(symbol) => (symbol.section_index(), symbol.address()),
                Err(_) => continue,
            },
            RelocationTarget::Section(index) => (Some(index), 0),
            _ => continue,
        };
        let address = start.wrapping_add_signed(relocation.addend());
        places.insert(offset, (target.map(|index| index.0), address));
    }
    places
}

enum Relocations<'map> {
    Of(HashMap<u64, Place>),
    Dynamic(&'map HashMap<u64, u64>),
}

/// One section of entries.
struct Sleds<'map, 'data> {
    bytes: &'data [u8],
    address: u64,
    /// Its offset in the file.
    offset: u64,
    object: &'map object::File<'data>,
    relocations: Relocations<'map>,
}

impl Sleds<'_, '_> {
    /// Adds each function whose address differs from that of the entry before.
    fn append_functions(&self, functions: &mut Vec<Place>) -> Result<(), Error> {
        let order = if self.object.is_little_endian() { ByteOrder::Little } else { ByteOrder::Big };
        let mut cursor = Cursor::part(self.bytes, order, self.offset);
        let word: u64 = if self.object.is_64() { 8 } else { 4 };
        // In an unlinked file a new section is a new function, even at the same address in its section.
        let mut previous = None;
        while !cursor.is_at_end() {
            let entry = cursor.offset() - self.offset;
            cursor.skip(word)?;
            let value = if word == 8 { cursor.u64()? } else { u64::from(cursor.u32()?) };
            cursor.skip(2)?;
            let version = cursor.u8()?;
            cursor.skip(2 * word - 3)?;
            let function = self.function(entry + word, value, version);
            if previous != Some(function) {
                functions.push(function);
                previous = Some(function);
            }
        }
        Ok(())
    }

    /// The address that the field at `offset` of the section holds.
    fn function(&self, offset: u64, value: u64, version: u8) -> Place {
        let field = self.address.wrapping_add(offset);
        let signed =
            if self.object.is_64() { value } else { i64::from((value as u32).cast_signed()).cast_unsigned() };
        match &self.relocations {
            Relocations::Of(places) => places.get(&offset).copied().unwrap_or((Some(usize::MAX), signed)),
            Relocations::Dynamic(_) if version >= 2 => (None, self.masked(field.wrapping_add(signed))),
            Relocations::Dynamic(relocations) => (None, relocations.get(&field).copied().unwrap_or(value)),
        }
    }

    fn masked(&self, address: u64) -> u64 {
        if self.object.is_64() { address } else { address & u64::from(u32::MAX) }
    }
}
