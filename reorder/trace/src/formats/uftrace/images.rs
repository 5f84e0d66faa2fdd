//! `sid-*.map` and `*.sym`: the addresses of a session's images, and their symbols relative to these.
//!
//! ```text
//! 556c6ef00000-556c6ef05000 r-xp 00000000 00:00 0    /tmp/demo build-id:4a4e6363077a7d82
//! ```
//! ```text
//! # path name: /tmp/demo
//! 0000000000001040 P strcmp
//! 00000000000011d9 T util_log
//! ```

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::{Object as _, ObjectSegment as _};

use super::calls::Call;
use super::tasks::{Loaded, Tasks};
use crate::formats::image_traces::{image_at, recorded_image};
use crate::formats::lines::{lines, split_once};
use crate::{CompanionImage, Companions, ImageIdentity, Name, Note};
use reorder_base::address::{Address, RuntimeAddress};
use reorder_base::hexadecimal::decode;
use reorder_base::numbers::hexadecimal;

/// One image at its address.
pub(super) struct Image {
    pub(super) identity: ImageIdentity,
    start: u64,
    end: u64,
    /// The address that the image itself states for its first byte.
    first: u64,
    /// Shared by all sessions.
    symbols: Arc<[Symbol]>,
}

pub(super) struct Symbol {
    /// Relative to the image's first byte.
    pub(super) address: Address,
    pub(super) name: Name,
    pub(super) is_stub: bool,
}

impl Image {
    pub(super) fn relative(&self, address: RuntimeAddress) -> Address {
        Address(address.0.wrapping_sub(self.start))
    }

    pub(super) fn stated(&self, relative: Address) -> Address {
        relative.plus(self.first)
    }

    /// The last symbol at or before the address.
    pub(super) fn symbol_of(&self, address: RuntimeAddress) -> Option<&Symbol> {
        let relative = self.relative(address);
        let after = self.symbols.partition_point(|symbol| symbol.address <= relative);
        let found = self.symbols.get(after.checked_sub(1)?)?;
        // The first of several names at one address.
        let first = self.symbols.partition_point(|symbol| symbol.address < found.address);
        self.symbols.get(first)
    }
}

/// The images of all sessions.
pub(super) struct Images {
    /// By session, sorted by address; sessions with one id share them.
    sessions: Vec<Arc<[Image]>>,
}

impl Images {
    pub(super) fn read(
        directory: &Path,
        tasks: &Tasks,
        companions: &Companions,
        notes: &mut Vec<Note>,
    ) -> Self {
        let symbols = symbols(directory);
        let mut loaded: HashMap<&[u8], Vec<&Loaded>> = HashMap::new();
        for library in &tasks.loaded {
            loaded.entry(&library.session).or_default().push(library);
        }
        let mut places = Places { companions, first_bytes: HashMap::new() };
        let mut by_id: HashMap<&[u8], Arc<[Image]>> = HashMap::new();
        let mut sessions = Vec::with_capacity(tasks.sessions.len());
        for id in tasks.sessions.iter().map(|session| session.id.as_slice()) {
            let images = by_id.entry(id).or_insert_with(|| {
                let libraries = loaded.get(id).map_or(&[][..], Vec::as_slice);
                images_of(directory, id, libraries, &symbols, &mut places, notes)
            });
            sessions.push(Arc::clone(images));
        }
        Self { sessions }
    }

    pub(super) fn containing(&self, call: &Call) -> Option<&Image> {
        let images = self.sessions.get(call.session?)?;
        let after = images.partition_point(|image| image.start <= call.address);
        images.get(after.checked_sub(1)?).filter(|image| call.address < image.end)
    }
}

impl Image {
    fn new(path: &[u8], build_id: Option<Vec<u8>>, start: u64, end: u64) -> Self {
        // Only programs that are not position-independent have such low addresses.
        let first = if start < LOWEST_ANYWHERE { start } else { 0 };
        Self {
            identity: ImageIdentity { build_id, ..image_at(path) },
            start,
            end,
            first,
            symbols: Arc::default(),
        }
    }
}

/// Preferred addresses of images, each read once.
struct Places<'companions> {
    companions: &'companions Companions,
    first_bytes: HashMap<(Option<PathBuf>, Vec<u8>), Option<u64>>,
}

impl Places<'_> {
    /// The address that the image itself states, if the file exists and is unchanged.
    fn first_byte(&mut self, identity: &ImageIdentity) -> Option<u64> {
        let build_id = identity.build_id.as_ref()?;
        let key = (identity.path.clone(), build_id.clone());
        let is_it = |image: &CompanionImage<'_>| image.identity.build_id.as_ref() == Some(build_id);
        *self.first_bytes.entry(key).or_insert_with(|| {
            self.companions.images().find(&is_it).and_then(|image| first_byte(&image)).or_else(|| {
                let companion = recorded_image(identity.path.as_deref()?)?;
                first_byte(&CompanionImage::parse(&companion).filter(is_it)?)
            })
        })
    }
}

const LOWEST_ANYWHERE: u64 = 1 << 32;

/// Address of the image's first byte without a bias.
fn first_byte(image: &CompanionImage<'_>) -> Option<u64> {
    image.object.segments().map(|segment| segment.address() & !(segment.align().max(1) - 1)).min()
}

type SymbolTables = HashMap<Vec<u8>, Arc<[Symbol]>>;

/// The images of the session called `id`, sorted by address.
fn images_of(
    directory: &Path,
    id: &[u8],
    libraries: &[&Loaded],
    symbols: &SymbolTables,
    places: &mut Places<'_>,
    notes: &mut Vec<Note>,
) -> Arc<[Image]> {
    let id = String::from_utf8_lossy(id);
    let map = std::fs::read(directory.join(format!("sid-{id}.map"))).unwrap_or_else(|error| {
        notes.push(Note::new(format!("sid-{id}.map cannot be read: {error}")));
        Vec::new()
    });
    let mapped = lines(&map).filter_map(|(_, line)| mapped(line));
    let loaded = libraries.iter().map(|library| {
        let last = symbols.get(&library.path).and_then(|symbols| symbols.last());
        let end = last.map_or(library.base, |last| last.address.0.saturating_add(1));
        Image::new(&library.path, None, library.base, end.saturating_add(library.base))
    });
    // All mappings of one file are one image.
    let mut images: Vec<Image> = Vec::new();
    let mut by_path: HashMap<Option<PathBuf>, usize> = HashMap::new();
    for image in mapped.chain(loaded) {
        let index = *by_path.entry(image.identity.path.clone()).or_insert(images.len());
        match images.get_mut(index) {
            Some(known) => {
                (known.start, known.end) = (known.start.min(image.start), known.end.max(image.end));
            }
            None => images.push(image),
        }
    }
    for image in &mut images {
        let path = image.identity.path.as_ref().map(|path| path.as_os_str().as_encoded_bytes());
        image.symbols = path.and_then(|path| symbols.get(path)).cloned().unwrap_or_default();
        image.first = places.first_byte(&image.identity).unwrap_or(image.first);
    }
    images.sort_by_key(|image| image.start);
    images.into()
}

fn mapped(line: &[u8]) -> Option<Image> {
    let (range, rest) = split_once(line, b" ")?;
    let (start, end) = split_once(range, b"-")?;
    let (_, path) = split_once(rest, b" /")?;
    let (path, build_id) =
        split_once(path, b" build-id:").map_or((path, None), |(path, id)| (path, bytes_of(id)));
    Some(Image::new(&[b"/", path].concat(), build_id, hexadecimal(start)?, hexadecimal(end)?))
}

fn bytes_of(digits: &[u8]) -> Option<Vec<u8>> {
    // An odd digit at the end is ignored: the rest still identifies the image.
    let (pairs, _) = digits.trim_ascii().as_chunks::<2>();
    decode(pairs.as_flattened()).filter(|bytes| !bytes.is_empty())
}

/// The symbols of every image by its path.
fn symbols(directory: &Path) -> SymbolTables {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "sym") && path.is_file())
        .collect();
    files.sort_unstable();
    let mut by_path = HashMap::new();
    for bytes in files.iter().filter_map(|path| std::fs::read(path).ok()) {
        let mut path = None;
        let mut symbols = Vec::new();
        for (_, line) in lines(&bytes) {
            match line.strip_prefix(b"# path name: ") {
                Some(name) => path = Some(name.trim_ascii().to_vec()),
                None => symbols.extend(symbol(line)),
            }
        }
        symbols.sort_by_key(|symbol: &Symbol| symbol.address);
        by_path.extend(path.map(|path| (path, symbols.into())));
    }
    by_path
}

/// An address, in later versions a size, a kind as `nm` spells it or `P` for a stub, and a name.
fn symbol(line: &[u8]) -> Option<Symbol> {
    let (address, rest) = split_once(line, b" ")?;
    let rest = if rest.get(1) == Some(&b' ') { rest } else { split_once(rest, b" ")?.1 };
    let (kind, name) = split_once(rest, b" ")?;
    let is_code = matches!(kind, b"T" | b"t" | b"W" | b"w" | b"i" | b"P");
    let address = Address(hexadecimal(address)?);
    is_code.then(|| Symbol { address, name: name.into(), is_stub: kind == b"P" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_share_symbols_and_images() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("demo.sym", "# path name: /demo\n0000000000000010 T main\n");
        let lines = [(1, 5), (2, 5), (3, 6)].map(|(time, id)| {
            write(&format!("sid-{id}.map"), "1000-2000 r-xp 00000000 00:00 0    /demo\n");
            format!("SESS timestamp={time}.000000000 pid={time} sid={id} exename=\"/demo\"\n")
        });
        write("task.txt", &lines.concat());
        let mut notes = Vec::new();
        let tasks = Tasks::read(directory.path(), &mut notes);
        let images = Images::read(directory.path(), &tasks, &Companions::default(), &mut notes);
        let [first, again, other] = &images.sessions[..] else { panic!("{notes:?}") };
        assert!(Arc::ptr_eq(first, again));
        assert_eq!((first.len(), other.len(), first[0].symbols.len()), (1, 1, 1));
        assert!(Arc::ptr_eq(&first[0].symbols, &other[0].symbols));
        let sessions = [(1, 0), (1, 1_000_000_000), (2, u64::MAX), (3, u64::MAX)];
        let found = sessions.map(|(process, time)| tasks.session_at(process, time));
        assert_eq!(found, [None, Some(0), Some(1), Some(2)]);
    }
}
