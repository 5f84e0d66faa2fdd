//! A program of `scripts/layout/corpus`: its image, the input sections of its link, and its traces.
//!
//! In: the program's directory. Out: [`Corpus`], with everything as numbers: functions are indices in address
//! order, traces are lists of them. An installed program, which we did not link, has no known sections; there each
//! function counts as one.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use layout_algos::score::Span;
use reorder_base::address::Address;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionTable;
use reorder_layout::compression::Compression;
use reorder_layout::order_file::read::read;
use reorder_layout::{Effort, LayoutRequest, Memory, Room, Strategy, Unseen, lay_out};
use reorder_system::mapped::map_image;
use reorder_trace::link_map::LinkMap;
use reorder_trace::{Companions, ImageIdentity, read_files, resolve};

use crate::layout_names::ProfileName;

/// The alignment that compilers for x86-64 give to functions.
const DEFAULT_ALIGNMENT: u64 = 16;

/// One input section in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputSection {
    /// Its address.
    pub address: u64,
    /// Size in bytes; never zero.
    pub size: u64,
    /// A power of two. Only the map states what each function's section required; the linked image does not.
    pub alignment: u64,
}

impl InputSection {
    /// One past the last byte.
    #[must_use]
    pub fn end(self) -> u64 {
        self.address + self.size
    }
}

/// One recorded run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The scenario.
    pub name: String,
    /// Each function once, in order of first execution.
    pub functions: Vec<u32>,
}

/// Runs that were given to the strategies, or held out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartSet {
    /// `train` or `held-out`.
    pub name: &'static str,
    /// By name.
    pub starts: Vec<Start>,
}

/// A program with its traces.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// The program's directory.
    pub directory: PathBuf,
    /// By function.
    pub spans: Vec<Span>,
    /// The smallest pieces that a linker moves, in link order.
    pub sections: Vec<InputSection>,
    /// The function's position in `sections`, unless it lies outside of them.
    pub section_of: Vec<Option<u32>>,
    /// By function: its name in other tools.
    pub names: Vec<ProfileName>,
    /// Given to the strategies.
    pub train: StartSet,
    /// Held out.
    pub held_out: StartSet,
}

impl Corpus {
    /// Reads the program at `directory`.
    ///
    /// # Errors
    /// Files that are missing or malformed, with their name.
    pub fn read(directory: &Path) -> Result<Self, String> {
        let path = directory.join("image");
        let bytes = map_image(&path).map_err(|error| error.to_string())?;
        let file = ElfFile::parse(&bytes).map_err(|error| error.to_string())?;
        let functions = ElfFunctions::collect(&file).map_err(|error| error.to_string())?;
        let spans: Vec<Span> = functions
            .table
            .iter()
            .map(|(_, function)| Span { start: function.start.0, end: function.end.0 })
            .collect();
        let map = directory.join("map");
        let sections = if map.exists() {
            let in_map = |error: &dyn std::fmt::Display| format!("{}: {error}", map.display());
            let bytes = fs::read(&map).map_err(|error| in_map(&error))?;
            text_sections(&LinkMap::parse(&bytes).map_err(|error| in_map(&error))?)?
        } else {
            sections_of_functions(&spans)
        };
        let identity = ImageIdentity::of(&path, file.build_id());
        let starts = |name: &'static str| {
            let traces = read_files(&[directory.join(name)], &Companions::default())
                .map_err(|error| error.to_string())?
                .traces;
            let resolved =
                resolve(&traces, &functions.table, &identity).map_err(|error| error.to_string())?;
            let starts = resolved.traces.into_iter().map(|trace| Start {
                name: Path::new(&trace.label).file_stem().unwrap_or_default().to_string_lossy().into_owned(),
                functions: trace.functions.iter().map(|function| function.0).collect(),
            });
            Ok::<_, String>(StartSet { name, starts: starts.collect() })
        };
        Ok(Self {
            directory: directory.to_path_buf(),
            section_of: spans.iter().map(|span| section_at(&sections, span.start)).collect(),
            names: ProfileName::all(&functions),
            train: starts("train")?,
            held_out: starts("held-out")?,
            sections,
            spans,
        })
    }

    /// The functions that an order file lists, in its order, and how many of its lines name no function.
    ///
    /// # Errors
    /// Unreadable files.
    pub fn listed(&self, order_file: &Path) -> Result<(Vec<u32>, usize), String> {
        let lines = fs::read(order_file).map_err(|error| format!("{}: {error}", order_file.display()))?;
        self.with_image(|_, functions, _| {
            let listed = read(&lines, functions);
            let unfound = listed.coverage.lines - listed.coverage.found();
            Ok((listed.functions.iter().map(|function| function.0).collect(), unfound))
        })
    }

    /// All functions as `reorder` orders them by the training runs with the named strategy, which may be followed by
    /// a memory model, `references` or `compress` after colons: `auto:16k`, `first-seen:references`. Names of functions
    /// are not used, so namesakes are told apart.
    ///
    /// # Errors
    /// Unknown strategies and memory models.
    pub fn ordered(&self, strategy: &str) -> Result<Vec<u32>, String> {
        let mut words = strategy.split(':');
        let strategy = Strategy::from_str(words.next().unwrap_or_default(), true)?;
        let mut request = LayoutRequest::of(strategy, 0);
        for word in words {
            match word {
                "references" => request.unseen = Unseen::References,
                "compress" => request.compress = Some(Compression::default()),
                "thorough" => request.effort = Effort::Thorough,
                memory => {
                    request.memory =
                        Memory::named(memory).ok_or_else(|| format!("no memory model is called {memory}"))?
                }
            }
        }
        self.with_image(|file, functions, identity| {
            let traces = read_files(&[self.directory.join(self.train.name)], &Companions::default())?.traces;
            let resolved = resolve(&traces, functions, identity)?;
            let layout = lay_out(file, functions, &resolved.traces, Room::Linker, &request)?;
            Ok(layout.order.iter().map(|function| function.0).collect())
        })
    }

    fn with_image<T>(
        &self,
        use_image: impl FnOnce(&ElfFile<'_>, &FunctionTable<'_>, &ImageIdentity) -> reorder_base::error::Result<T>,
    ) -> Result<T, String> {
        let path = self.directory.join("image");
        let used = map_image(&path).and_then(|bytes| {
            let file = ElfFile::parse(&bytes)?;
            use_image(&file, &ElfFunctions::collect(&file)?.table, &ImageIdentity::of(&path, file.build_id()))
        });
        used.map_err(|error| error.to_string())
    }

    /// The functions of `starts` in the order of their first appearance.
    #[must_use]
    pub fn first_seen<'a>(&self, starts: impl IntoIterator<Item = &'a Start>) -> Vec<u32> {
        let mut seen = vec![false; self.spans.len()];
        let functions = starts.into_iter().flat_map(|start| start.functions.iter().copied());
        functions.filter(|&function| !std::mem::replace(&mut seen[function as usize], true)).collect()
    }

    /// The alignment that a function needs, wherever it is placed.
    #[must_use]
    pub fn alignment(&self, function: u32) -> u64 {
        let start = Address(self.spans[function as usize].start);
        self.section_of[function as usize]
            .map(|section| self.sections[section as usize])
            .filter(|section| section.address == start.0)
            // A function that does not begin its section needs no alignment of its own.
            .map_or(1, |section| section.alignment)
    }
}

/// The input sections of `.text`, in link order.
///
/// # Errors
/// A map without any, or one whose sections overlap.
fn text_sections(map: &LinkMap<'_>) -> Result<Vec<InputSection>, String> {
    let in_text = map.sections.iter().filter(|section| section.output == b".text");
    let sections: Vec<InputSection> = in_text
        .map(|section| InputSection {
            address: section.address.0,
            size: section.size,
            alignment: section.alignment.unwrap_or(1).max(1),
        })
        .collect();
    match sections.windows(2).find(|pair| pair[0].end() > pair[1].address) {
        Some(pair) => Err(format!("input sections overlap at {:#x}", pair[1].address)),
        None if sections.is_empty() => Err("the link map has no .text".to_owned()),
        None => Ok(sections),
    }
}

/// Overlapping functions as one section each, with the largest alignment, up to the default one, that their address has.
fn sections_of_functions(spans: &[Span]) -> Vec<InputSection> {
    let mut sections: Vec<InputSection> = Vec::new();
    for span in spans {
        match sections.last_mut() {
            Some(last) if span.start < last.end() => last.size = last.size.max(span.end - last.address),
            _ => sections.push(InputSection {
                address: span.start,
                size: span.end - span.start,
                alignment: DEFAULT_ALIGNMENT.min(1 << span.start.trailing_zeros().min(32)),
            }),
        }
    }
    sections
}

/// Position of the section that contains `address`.
fn section_at(sections: &[InputSection], address: u64) -> Option<u32> {
    let after = sections.partition_point(|section| section.address <= address);
    let index = after.checked_sub(1)?;
    (address < sections[index].end()).then_some(index as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "\
             VMA              LMA     Size Align Out     In      Symbol
           58000            58000       70    16 .text
           58000            58000       22    16         a.o:(.text)
           58022            58022        0     1         b.o:(.text)
           58030            58030       40    32         b.o:(.text.f)
           58080            58080       40    16 .init
           58080            58080       40     4         b.o:(.init)
";

    fn sections(map: &str) -> Result<Vec<InputSection>, String> {
        text_sections(&LinkMap::parse(map.as_bytes()).map_err(|error| error.to_string())?)
    }

    #[test]
    fn maps_without_text_and_with_overlaps_are_errors() {
        let found = sections(MAP).unwrap();
        assert_eq!(found.iter().map(|section| section.size).collect::<Vec<_>>(), [0x22, 0x40]);
        let others: String =
            MAP.lines().filter(|line| !line.contains("text")).map(|line| line.to_owned() + "\n").collect();
        assert_eq!(sections(&others).err().as_deref(), Some("the link map has no .text"));
        let overlapping = MAP.replace("58030            58030", "58020            58020");
        assert!(sections(&overlapping).unwrap_err().contains("overlap"));
    }
}
