//! `sid-*.map` and `*.sym`: where a session's images were, and their symbols relative to that place.
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
use std::path::Path;

use object::{Object as _, ObjectSegment as _};

use super::calls::Call;
use super::tasks::Tasks;
use crate::address::{Address, RuntimeAddress};
use crate::trace::formats::image_traces::image_at;
use crate::trace::formats::lines::{bare_hexadecimal, lines, split_once};
use crate::trace::{CompanionImage, Companions, ImageIdentity, Name, Note};

/// One image at its place.
pub(super) struct Image {
    pub(super) identity: ImageIdentity,
    start: u64,
    end: u64,
    /// What the image itself states for its first byte.
    first: u64,
    symbols: Vec<Symbol>,
}

#[derive(Clone)]
pub(super) struct Symbol {
    /// From the image's first byte on.
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

    /// The last symbol that starts at or before the address.
    pub(super) fn symbol_of(&self, address: RuntimeAddress) -> Option<&Symbol> {
        let relative = self.relative(address);
        let after = self.symbols.partition_point(|symbol| symbol.address <= relative);
        let found = self.symbols.get(after.checked_sub(1)?)?;
        // The first of several names.
        let first = self.symbols.partition_point(|symbol| symbol.address < found.address);
        self.symbols.get(first)
    }
}

/// The images of all sessions.
pub(super) struct Images {
    /// By session, sorted by place.
    sessions: Vec<Vec<Image>>,
}

impl Images {
    pub(super) fn read(
        directory: &Path,
        tasks: &Tasks,
        companions: &Companions,
        notes: &mut Vec<Note>,
    ) -> Self {
        let symbols = symbols(directory);
        let mut sessions = Vec::new();
        for session in &tasks.sessions {
            let id = String::from_utf8_lossy(&session.id).into_owned();
            let mut images: Vec<Image> = Vec::new();
            match std::fs::read(directory.join(format!("sid-{id}.map"))) {
                Ok(map) => {
                    let mapped = lines(&map).filter_map(|(_, line)| mapped(line));
                    for image in mapped {
                        add(&mut images, image, &symbols);
                    }
                }
                Err(error) => notes.push(Note::new(format!("sid-{id}.map cannot be read: {error}"))),
            }
            for loaded in tasks.loaded.iter().filter(|loaded| loaded.session == session.id) {
                let length = symbols.get(&loaded.path).and_then(|symbols| symbols.last());
                let end = length
                    .map_or(loaded.base, |last| last.address.0.saturating_add(1))
                    .saturating_add(loaded.base);
                add(&mut images, Image::new(&loaded.path, None, loaded.base, end), &symbols);
            }
            images.sort_by_key(|image| image.start);
            for image in &mut images {
                image.place(companions);
            }
            sessions.push(images);
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
        // Only programs that are not position-independent lie that low.
        let first = if start < LOWEST_ANYWHERE { start } else { 0 };
        Self {
            identity: ImageIdentity { build_id, ..image_at(path) },
            start,
            end,
            first,
            symbols: Vec::new(),
        }
    }

    /// Takes from the image itself, if it is there unchanged, where it wants to be.
    fn place(&mut self, companions: &Companions) {
        let build_id = self.identity.build_id.clone();
        let is_it = |image: &CompanionImage<'_>| build_id.is_some() && image.identity.build_id == build_id;
        let first = companions.images().find(&is_it).and_then(|image| first_byte(&image)).or_else(|| {
            let path = self.identity.path.clone().filter(|path| path.is_file())?;
            let opened = Companions::open(&[path]).ok()?;
            let image = opened.images().find(&is_it)?;
            first_byte(&image)
        });
        self.first = first.unwrap_or(self.first);
    }
}

const LOWEST_ANYWHERE: u64 = 1 << 32;

/// Where the image's first byte would be without a bias.
fn first_byte(image: &CompanionImage<'_>) -> Option<u64> {
    image.object.segments().map(|segment| segment.address() & !(segment.align().max(1) - 1)).min()
}

/// Several mappings of one file are one image.
fn add(images: &mut Vec<Image>, image: Image, symbols: &HashMap<Vec<u8>, Vec<Symbol>>) {
    match images.iter_mut().find(|known| known.identity.path == image.identity.path) {
        Some(known) => (known.start, known.end) = (known.start.min(image.start), known.end.max(image.end)),
        None => {
            let path = image.identity.path.as_ref().map(|path| path.as_os_str().as_encoded_bytes());
            let symbols = path.and_then(|path| symbols.get(path)).cloned().unwrap_or_default();
            images.push(Image { symbols, ..image });
        }
    }
}

fn mapped(line: &[u8]) -> Option<Image> {
    let (range, rest) = split_once(line, b" ")?;
    let (start, end) = split_once(range, b"-")?;
    let (_, path) = split_once(rest, b" /")?;
    let (path, build_id) =
        split_once(path, b" build-id:").map_or((path, None), |(path, id)| (path, bytes_of(id)));
    Some(Image::new(&[b"/", path].concat(), build_id, bare_hexadecimal(start)?, bare_hexadecimal(end)?))
}

fn bytes_of(digits: &[u8]) -> Option<Vec<u8>> {
    let bytes = digits.trim_ascii().chunks_exact(2).map(|pair| bare_hexadecimal(pair).map(|byte| byte as u8));
    bytes.collect::<Option<Vec<u8>>>().filter(|bytes| !bytes.is_empty())
}

/// The symbols of every image by its path.
fn symbols(directory: &Path) -> HashMap<Vec<u8>, Vec<Symbol>> {
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
        by_path.extend(path.map(|path| (path, symbols)));
    }
    by_path
}

/// An address, in later versions a size, a kind as `nm` spells it or `P` for a stub, and a name.
fn symbol(line: &[u8]) -> Option<Symbol> {
    let (address, rest) = split_once(line, b" ")?;
    let rest = if rest.get(1) == Some(&b' ') { rest } else { split_once(rest, b" ")?.1 };
    let (kind, name) = split_once(rest, b" ")?;
    let is_code = matches!(kind, b"T" | b"t" | b"W" | b"w" | b"i" | b"P");
    let address = Address(bare_hexadecimal(address)?);
    is_code.then(|| Symbol { address, name: name.into(), is_stub: kind == b"P" })
}
