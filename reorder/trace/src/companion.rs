//! Files that trace files need to be understood: instrumented images, their debug files, maps of names.
//!
//! A trace file that knows functions by number, by hash or by address of an image that is not the one to be laid
//! out is useless by itself. Companions are given on the command line; readers take the one that fits by contents.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SymbolKind};

use super::formats::llvm_images::InstrumentedImages;
use super::formats::llvm_names::NameTables;
use super::{ImageIdentity, Name};
use reorder_base::address::Address;
use reorder_base::error::{Error, Result};

/// Further files beside the traces.
#[derive(Debug, Default)]
pub struct Companions {
    files: Vec<Companion>,
    /// What profiles of one program have in common, kept from one file to the next.
    pub(super) llvm_names: NameTables,
    pub(super) llvm_images: InstrumentedImages,
}

/// One of them.
#[derive(Debug)]
pub struct Companion {
    /// Where it is.
    pub path: PathBuf,
    /// The whole file.
    pub bytes: Vec<u8>,
}

impl Companions {
    /// Reads `paths`. A directory that ends in `.dSYM` stands for the file in it that has the debug information.
    ///
    /// # Errors
    /// Files that cannot be read.
    pub fn open(paths: &[PathBuf]) -> Result<Self> {
        let mut files = Vec::new();
        for path in paths {
            let path = debug_file_of_bundle(path)?.unwrap_or_else(|| path.clone());
            let bytes = std::fs::read(&path).map_err(|error| Error::io(&path, error))?;
            files.push(Companion { path, bytes });
        }
        Ok(Self { files, ..Self::default() })
    }

    /// In the order given.
    pub fn iter(&self) -> impl Iterator<Item = &Companion> {
        self.files.iter()
    }

    /// Those that are images, ELF or Mach-O for any processor; universal files are not used.
    pub fn images(&self) -> impl Iterator<Item = CompanionImage<'_>> {
        self.files.iter().filter_map(CompanionImage::parse)
    }
}

impl From<Vec<Companion>> for Companions {
    fn from(files: Vec<Companion>) -> Self {
        Self { files, ..Self::default() }
    }
}

fn debug_file_of_bundle(path: &Path) -> Result<Option<PathBuf>> {
    let inner = path.join("Contents/Resources/DWARF");
    if !inner.is_dir() {
        return Ok(None);
    }
    let entries = std::fs::read_dir(&inner).map_err(|error| Error::io(&inner, error))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.sort_unstable();
    Ok(files.into_iter().next())
}

/// An image for any processor, as far as readers need it.
pub struct CompanionImage<'data> {
    /// Path and build-id or UUID.
    pub identity: ImageIdentity,
    /// For everything that has no accessor here.
    pub object: object::File<'data>,
    /// Sorted at the first request: most images are asked for their identity only.
    functions: OnceLock<Vec<(Address, u64, &'data [u8])>>,
}

/// The build-id of an ELF image, the UUID of a Mach-O image.
pub(super) fn build_id_of(object: &object::File<'_>) -> Option<Vec<u8>> {
    match object.build_id() {
        Ok(Some(build_id)) => Some(build_id.to_vec()),
        _ => object.mach_uuid().ok().flatten().map(|uuid| uuid.to_vec()),
    }
}

impl<'data> CompanionImage<'data> {
    /// `None` when it is not an image.
    pub fn parse(companion: &'data Companion) -> Option<Self> {
        let object = object::File::parse(companion.bytes.as_slice()).ok()?;
        let identity = ImageIdentity::of(&companion.path, build_id_of(&object));
        Some(Self { identity, object, functions: OnceLock::new() })
    }

    /// Function symbols by address, then size and name.
    fn functions(&self) -> &[(Address, u64, &'data [u8])] {
        self.functions.get_or_init(|| {
            let mut functions: Vec<(Address, u64, &[u8])> = self
                .object
                .symbols()
                .chain(self.object.dynamic_symbols())
                .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
                .filter_map(|symbol| {
                    Some((Address(symbol.address()), symbol.size(), symbol.name_bytes().ok()?))
                })
                .collect();
            functions.sort_unstable();
            functions.dedup();
            functions
        })
    }

    /// Address, size and contents of the section called `name`; a Mach-O section goes without its segment's name.
    /// Contents are empty in files that hold debug information only.
    pub fn section(&self, name: &str) -> Option<CompanionSection<'data>> {
        let section = self.object.section_by_name(name)?;
        Some(CompanionSection {
            address: Address(section.address()),
            size: section.size(),
            bytes: section.data().unwrap_or_default(),
        })
    }

    /// The first name of the function that starts at `address`.
    pub fn name_at(&self, address: Address) -> Option<Name> {
        let first = self.functions().partition_point(|(start, ..)| *start < address);
        let (start, _, name) = self.functions().get(first)?;
        (*start == address).then(|| Name::from(*name))
    }

    /// Start and first name of the function that `address` lies in: the last one that starts at or before it, unless
    /// its size says that it ends before.
    pub fn function_containing(&self, address: Address) -> Option<(Address, Name)> {
        let after = self.functions().partition_point(|(start, ..)| *start <= address);
        let (start, size, _) = *self.functions().get(after.checked_sub(1)?)?;
        (size == 0 || address.distance_from(start) < size)
            .then(|| self.name_at(start).map(|name| (start, name)))
            .flatten()
    }

    /// The address at which the byte at `offset` of the file is loaded.
    pub fn address_of_offset(&self, offset: u64) -> Option<Address> {
        self.object.segments().find_map(|segment| {
            let (start, size) = segment.file_range();
            let inside = offset.checked_sub(start).filter(|inside| *inside < size)?;
            segment.address().checked_add(inside).map(Address)
        })
    }
}

/// A section of an image.
#[derive(Clone, Copy, Debug)]
pub struct CompanionSection<'data> {
    /// Its first address.
    pub address: Address,
    /// Its size in memory, in bytes.
    pub size: u64,
    /// Its contents in the file, uncompressed sections only.
    pub bytes: &'data [u8],
}
