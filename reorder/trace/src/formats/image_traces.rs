//! Events sorted into one trace for each image of each process, each function at its first execution.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io::Read as _;
use std::path::Path;

use crate::{Companion, Event, ImageIdentity, Location, Trace};

/// Traces by a key that tells their images apart, in the order in which the images appear.
pub(super) struct ImageTraces<Key> {
    by_key: HashMap<Key, usize>,
    traces: Vec<Trace>,
    seen: HashSet<(usize, Location)>,
    /// What the command lines of all traces take.
    command_bytes: usize,
}

/// A log repeats its command line in the trace of each image; one of a long command and many images must not grow by
/// their product. Traces beyond go without, which only labels notice.
const MAX_COMMAND_BYTES: usize = 16 << 20;

impl<Key: Hash + Eq> ImageTraces<Key> {
    pub(super) fn new() -> Self {
        Self { by_key: HashMap::new(), traces: Vec::new(), seen: HashSet::new(), command_bytes: 0 }
    }

    /// Adds an event after those of its image, unless the image has one at the same place; `start` begins the
    /// trace of an image that was not seen before.
    pub(super) fn add(&mut self, key: Key, start: impl FnOnce() -> Trace, event: Event) {
        let index = *self.by_key.entry(key).or_insert_with(|| {
            let mut trace = start();
            self.command_bytes +=
                trace.command.iter().map(|word| word.len() + size_of_val(word)).sum::<usize>();
            if self.command_bytes > MAX_COMMAND_BYTES {
                trace.command = Vec::new();
            }
            self.traces.push(trace);
            self.traces.len() - 1
        });
        if self.seen.insert((index, event.location.clone())) {
            self.traces[index].events.push(event);
        }
    }

    pub(super) fn finish(self) -> Vec<Trace> {
        self.traces
    }
}

/// The identity of an image of which only the path is known.
pub(super) fn image_at(path: &[u8]) -> ImageIdentity {
    use std::os::unix::ffi::OsStrExt as _;
    ImageIdentity { path: Some(std::ffi::OsStr::from_bytes(path).into()), build_id: None }
}

/// Words of a recorded command line, which are not quoted in any way.
pub(super) fn words(command: &[u8]) -> Vec<Vec<u8>> {
    command.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
}

/// Whether `name` is how a person reads a symbol, not the symbol: with arguments, scopes or blanks.
pub(super) fn is_demangled(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'(' | b' ' | b':' | b'<'))
}

/// No image is larger.
const MAX_IMAGE: u64 = 1 << 30;

/// The image at a path that a recording names. Recordings may come from anywhere and name any file: anything that is not a
/// regular file, does not start as an image does or is too large for one is not read.
pub(super) fn recorded_image(path: &Path) -> Option<Companion> {
    let metadata = path.metadata().ok().filter(|metadata| metadata.is_file())?;
    if metadata.len() > MAX_IMAGE {
        return None;
    }
    let mut file = std::fs::File::open(path).ok()?;
    let mut bytes = Vec::new();
    file.by_ref().take(4).read_to_end(&mut bytes).ok()?;
    if !is_image(&bytes) {
        return None;
    }
    file.take(MAX_IMAGE).read_to_end(&mut bytes).ok()?;
    Some(Companion { path: path.to_path_buf(), bytes })
}

/// ELF, and Mach-O of either width and byte order.
fn is_image(start: &[u8]) -> bool {
    const MACH_O: [[u8; 4]; 4] = [
        [0xfe, 0xed, 0xfa, 0xce],
        [0xfe, 0xed, 0xfa, 0xcf],
        [0xce, 0xfa, 0xed, 0xfe],
        [0xcf, 0xfa, 0xed, 0xfe],
    ];
    start == b"\x7fELF" || MACH_O.iter().any(|magic| start == magic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_commands_are_not_repeated_without_end() {
        let command = vec![vec![b'x'; 1 << 20]];
        let mut traces = ImageTraces::new();
        for key in 0..100u64 {
            let start = || Trace { command: command.clone(), ..Trace::default() };
            traces.add(key, start, Event::at(Location::Name("main".into())));
        }
        let traces = traces.finish();
        assert_eq!(traces.len(), 100);
        let kept = traces.iter().filter(|trace| !trace.command.is_empty()).count();
        assert_eq!(kept, 15, "of 1 MiB each, with what the word itself takes");
    }

    #[test]
    fn only_images_are_read_from_recorded_paths() {
        let own = std::env::current_exe().unwrap();
        let image = recorded_image(&own).unwrap();
        assert_eq!(image.bytes, std::fs::read(&own).unwrap());

        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("text"), "no image").unwrap();
        let large = std::fs::File::create(at("large")).unwrap();
        std::io::Write::write_all(&mut &large, b"\x7fELF").unwrap();
        large.set_len(MAX_IMAGE + 1).unwrap();
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        // Opening a pipe without a writer would block forever.
        for name in ["text", "large", "pipe", "missing", ""] {
            assert!(recorded_image(&at(name)).is_none(), "{name}");
        }
        assert!(recorded_image(Path::new("/dev/zero")).is_none());
    }
}
