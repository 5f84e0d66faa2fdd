//! Memory models: the one table of their names and numbers, for all commands.
//!
//! A layout is made for one kind of [`Memory`]; faults are simulated under [`MemoryModel`]s, which are presets or come from
//! `reorder.toml`. A published name keeps its meaning: baselines and reports refer to it. The short names that layouts are
//! reported with (`4k`) are accepted wherever the names of presets (`linux-4k`) are, and the reverse.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use layout_algos::score::FaultModel;
use serde::Serialize;

use reorder_base::error::{Error, Result};

/// What a page fault brings into memory: the kinds that layouts are made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Memory {
    /// Pages of 4 KiB: most of Linux, macOS on x86-64
    #[default]
    #[serde(rename = "4k")]
    Pages4K,
    /// Pages of 16 KiB: iOS, macOS on arm64, new Android devices
    #[serde(rename = "16k")]
    Pages16K,
    /// Blocks of 64 KiB around each fault: Linux with the file in memory
    #[serde(rename = "fault-around")]
    FaultAround,
    /// Windows of 128 KiB around each fault: Linux up to 6.16 with the file on disk
    #[serde(rename = "read-around")]
    ReadAround,
    /// The 128 KiB from each fault on: Linux from 6.17 on with the file on disk
    #[serde(rename = "read-ahead")]
    ReadAhead,
    /// Aligned 64 KiB: code in large folios
    #[serde(rename = "64k")]
    Folios64K,
    /// Windows of 4 MiB around each fault: Linux with a large read-ahead
    #[serde(rename = "read-around-4m")]
    ReadAround4M,
    /// Aligned blocks of 512 KiB: compressed file systems
    #[serde(rename = "512k")]
    Blocks512K,
    /// Aligned blocks of 4 MiB: images that are pulled when they are read
    #[serde(rename = "4m")]
    Blocks4M,
}

/// A memory model with the name that reports, baselines and `reorder.toml` use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryModel {
    /// As users write it, such as `linux-4k`.
    pub name: String,
    /// A description of a few words.
    pub title: String,
    /// The model in numbers.
    #[serde(skip)]
    pub model: FaultModel,
}

/// A model that comes with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// As users write it, such as `linux-4k`.
    pub name: &'static str,
    /// A description of a few words.
    pub title: &'static str,
    /// Where its numbers come from, and how far they were checked.
    pub source: &'static str,
    /// The kind of memory.
    pub memory: Memory,
}

/// All models that come with the program.
pub const PRESETS: [Preset; 11] = [
    Preset {
        name: "linux-4k",
        title: "4 KiB pages",
        source: "Linux with the file on disk and read-ahead off: each page of 4 KiB faults once (mm/filemap.c, \
                 filemap_fault); checked by page table, page cache and sampled faults",
        memory: Memory::Pages4K,
    },
    Preset {
        name: "linux-4k-faultaround-64k",
        title: "64 KiB fault-around",
        source: "Linux with the file in memory: a fault maps the aligned 64 KiB around it (mm/memory.c, do_fault_around, \
                 fault_around_bytes); checked by page table and sampled faults",
        memory: Memory::FaultAround,
    },
    Preset {
        name: "linux-readahead-128k",
        title: "128 KiB read-around",
        source: "Linux up to 6.16 with the file on disk: a fault reads 128 KiB that begin 64 KiB before it (mm/filemap.c, \
                 do_sync_mmap_readahead; read_ahead_kb); not checked yet: the tests need such a kernel",
        memory: Memory::ReadAround,
    },
    Preset {
        name: "linux-6.17-readahead-128k",
        title: "128 KiB read-ahead",
        source: "Linux from 6.17 on with the file on disk: a fault in code reads the 128 KiB from its page on, not beyond the \
                 mapping (mm/filemap.c, do_sync_mmap_readahead); checked by the page cache",
        memory: Memory::ReadAhead,
    },
    Preset {
        name: "android-16k",
        title: "16 KiB pages",
        source: "Android 15 and later on devices with 16 KiB pages (source.android.com, 16 KB page size), read-ahead off: each \
                 page faults once; not checked on a device",
        memory: Memory::Pages16K,
    },
    Preset {
        name: "ios-16k",
        title: "16 KiB pages",
        source: "iOS, and macOS on arm64 (WWDC 2018, iOS Memory Deep Dive: pages are typically 16 KB): each page of a mapped \
                 image is read and decrypted by itself; not checked on a device",
        memory: Memory::Pages16K,
    },
    Preset {
        name: "macos-4k",
        title: "4 KiB pages",
        source: "macOS on x86-64, whose processors have pages of 4 KiB (PAGE_SIZE in mach/i386/vm_param.h): each page of a \
                 mapped image is read by itself; not checked on a device",
        memory: Memory::Pages4K,
    },
    Preset {
        name: "linux-arm64-64k",
        title: "64 KiB folios",
        source: "Linux from 6.17 on for arm64, whose page cache holds code in aligned folios of 64 KiB (exec_folio_order in \
                 arch/arm64/include/asm/pgtable.h), without further read-ahead; not checked on such a system",
        memory: Memory::Folios64K,
    },
    Preset {
        name: "linux-readahead-4m",
        title: "4 MiB read-around",
        source: "Linux with the file on disk and read_ahead_kb of 4096, as on arrays and network disks: 4 MiB that begin 2 MiB \
                 before the fault (mm/filemap.c, do_sync_mmap_readahead); not checked",
        memory: Memory::ReadAround4M,
    },
    Preset {
        name: "image-512k",
        title: "512 KiB blocks",
        source: "squashfs with blocks of 512 KiB (mksquashfs -b 512K; 128 KiB by default, at most 1 MiB): a block is read and \
                 unpacked whole; blocks are taken to be aligned in memory; not checked",
        memory: Memory::Blocks512K,
    },
    Preset {
        name: "image-4m",
        title: "4 MiB blocks",
        source: "container images that are pulled when they are read, in chunks of 4 MiB (the default of eStargz): a chunk is \
                 fetched whole; chunks are taken to be aligned in memory; not checked",
        memory: Memory::Blocks4M,
    },
];

/// The kinds of memory that have short names, in the order in which messages list them.
const KINDS: [Memory; 9] = [
    Memory::Pages4K,
    Memory::Pages16K,
    Memory::FaultAround,
    Memory::ReadAround,
    Memory::ReadAhead,
    Memory::Folios64K,
    Memory::ReadAround4M,
    Memory::Blocks512K,
    Memory::Blocks4M,
];

/// Stands for one model of each kind of memory.
pub const ALL: &str = "all";

impl Memory {
    /// The default of the systems that run Mach-O images for `architecture`, as linkers name it.
    #[must_use]
    pub fn of_macho(architecture: &str) -> Self {
        match architecture {
            "x86_64" => Self::Pages4K,
            _ => Self::Pages16K,
        }
    }

    /// The short name, which layouts are reported with.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pages4K => "4k",
            Self::Pages16K => "16k",
            Self::FaultAround => "fault-around",
            Self::ReadAround => "read-around",
            Self::ReadAhead => "read-ahead",
            Self::Folios64K => "64k",
            Self::ReadAround4M => "read-around-4m",
            Self::Blocks512K => "512k",
            Self::Blocks4M => "4m",
        }
    }

    /// The model in numbers.
    #[must_use]
    pub fn model(self) -> FaultModel {
        match self {
            Self::Pages4K => FaultModel::Pages { size: 4 << 10 },
            Self::Pages16K => FaultModel::Pages { size: 16 << 10 },
            Self::FaultAround => FaultModel::FaultAround { block: 64 << 10 },
            Self::ReadAround => FaultModel::ReadAround { page: 4 << 10, window: 128 << 10, before: 64 << 10 },
            Self::ReadAhead => FaultModel::ReadAround { page: 4 << 10, window: 128 << 10, before: 0 },
            Self::Folios64K => FaultModel::Pages { size: 64 << 10 },
            Self::ReadAround4M => FaultModel::ReadAround { page: 4 << 10, window: 4 << 20, before: 2 << 20 },
            Self::Blocks512K => FaultModel::Pages { size: 512 << 10 },
            Self::Blocks4M => FaultModel::Pages { size: 4 << 20 },
        }
    }

    /// Bytes of what one touch asks for: a page, or with fault-around its block.
    #[must_use]
    pub fn page_bytes(self) -> u64 {
        page_bytes(self.model())
    }

    /// The memory of the preset called `name`; short names count.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        preset(name).map(|preset| preset.memory)
    }

    /// For the command line: takes all names, lists those of the presets in help texts.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        let presets = PRESETS.iter().map(|preset| PossibleValue::new(preset.name).help(preset.title));
        let short = KINDS.iter().map(|kind| PossibleValue::new(kind.name()).hide(true));
        PossibleValuesParser::new(presets.chain(short))
            .try_map(|name| Self::named(&name).ok_or("unknown model"))
    }
}

/// The names of the presets and their short names, as a list for messages.
#[must_use]
pub fn known_names() -> String {
    let short = KINDS.iter().map(|kind| kind.name());
    PRESETS.iter().map(|preset| preset.name).chain(short).collect::<Vec<_>>().join(", ")
}

/// The preset called `name`, or the first one of the memory with this short name.
fn preset(name: &str) -> Option<&'static Preset> {
    static TABLE: [Preset; PRESETS.len()] = PRESETS;
    let by_name = TABLE.iter().find(|preset| preset.name == name);
    by_name.or_else(|| TABLE.iter().find(|preset| preset.memory.name() == name))
}

impl MemoryModel {
    /// Its numbers, in the form that baselines keep.
    #[must_use]
    pub fn numbers(&self) -> String {
        match self.model {
            FaultModel::Pages { size } => format!("pages of {size}"),
            FaultModel::FaultAround { block } => format!("blocks of {block}"),
            FaultModel::ReadAround { page, window, before } => {
                format!("pages of {page}, windows of {window}, {before} before")
            }
        }
    }

    /// Bytes of what one touch asks for: a page, or with fault-around its block.
    #[must_use]
    pub fn page_bytes(&self) -> u64 {
        page_bytes(self.model)
    }
}

fn page_bytes(model: FaultModel) -> u64 {
    match model {
        FaultModel::Pages { size } => size,
        FaultModel::FaultAround { block } => block,
        FaultModel::ReadAround { page, .. } => page,
    }
}

impl From<Preset> for MemoryModel {
    fn from(preset: Preset) -> Self {
        Self { name: preset.name.to_owned(), title: preset.title.to_owned(), model: preset.memory.model() }
    }
}

/// The models that an ELF image is judged by unless others are asked for.
#[must_use]
pub fn default_for_elf() -> Vec<MemoryModel> {
    const DEFAULT: [&str; 4] =
        ["linux-4k", "linux-4k-faultaround-64k", "linux-readahead-128k", "android-16k"];
    PRESETS.iter().filter(|preset| DEFAULT.contains(&preset.name)).map(|&preset| preset.into()).collect()
}

/// The same for a Mach-O image for the processor that linkers call `architecture`.
#[must_use]
pub(crate) fn default_for_macho(architecture: &str) -> Vec<MemoryModel> {
    let default = if architecture == "x86_64" { "macos-4k" } else { "ios-16k" };
    PRESETS.iter().filter(|preset| preset.name == default).map(|&preset| preset.into()).collect()
}

/// The first preset of each kind of memory.
#[must_use]
pub fn of_each_kind() -> Vec<MemoryModel> {
    KINDS.iter().filter_map(|kind| preset(kind.name())).map(|&preset| preset.into()).collect()
}

/// The models called `names`, of these `custom` ones and of the presets, in the order of the names; each model once. [`ALL`] is the
/// first preset of each kind of memory.
///
/// # Errors
/// Unknown names; the hint lists the known ones.
pub fn find(names: &[String], custom: &[MemoryModel]) -> Result<Vec<MemoryModel>> {
    let mut found: Vec<MemoryModel> = Vec::new();
    for name in names {
        if name == ALL && custom.iter().all(|model| model.name != ALL) {
            let mut new = of_each_kind();
            new.retain(|model| found.iter().all(|other| other.name != model.name));
            found.extend(new);
            continue;
        }
        let model = find_one(name, custom)?;
        if found.iter().all(|other| other.name != model.name) {
            found.push(model);
        }
    }
    Ok(found)
}

fn find_one(name: &str, custom: &[MemoryModel]) -> Result<MemoryModel> {
    // A repository's own models come first: they may have the short name of a preset.
    let custom_one = custom.iter().find(|model| model.name == name).cloned();
    custom_one.or_else(|| preset(name).map(|&preset| preset.into())).ok_or_else(|| {
        let own = custom.iter().map(|model| model.name.as_str());
        let presets = PRESETS.iter().map(|preset| preset.name);
        let known: Vec<&str> = presets.chain(own).chain([ALL]).collect();
        Error::usage(format!("no memory model is called {name}")).with_hint(format!(
            "there are {}; others are defined by [model.NAME] in reorder.toml",
            known.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use super::*;

    #[test]
    fn a_model_has_the_same_names_everywhere() {
        for (short, name) in [
            ("4k", "linux-4k"),
            ("16k", "android-16k"),
            ("fault-around", "linux-4k-faultaround-64k"),
            ("read-around", "linux-readahead-128k"),
            ("read-ahead", "linux-6.17-readahead-128k"),
            ("64k", "linux-arm64-64k"),
            ("read-around-4m", "linux-readahead-4m"),
            ("512k", "image-512k"),
            ("4m", "image-4m"),
        ] {
            assert_eq!(Memory::named(short), Memory::named(name), "{name}");
            assert_eq!(serde_json::to_value(Memory::named(name)).unwrap(), short);
            let names = [short, name].map(str::to_owned);
            assert_eq!(find(&names, &[]).unwrap(), find(&names[1..], &[]).unwrap(), "{name}");
        }
        let all = find(&[ALL.to_owned()], &[]).unwrap();
        assert_eq!((all.len(), all[0].name.as_str()), (KINDS.len(), "linux-4k"));
        assert_eq!(Memory::named("ios-16k"), Some(Memory::Pages16K));
        assert_eq!(Memory::named("macos-4k"), Some(Memory::Pages4K));
        assert_eq!(Memory::named("4K"), None);
    }

    #[test]
    fn a_repository_may_give_a_short_name_a_meaning_of_its_own() {
        let own = MemoryModel {
            name: "4k".to_owned(),
            title: "its own".to_owned(),
            model: FaultModel::Pages { size: 1 << 16 },
        };
        assert_eq!(find(&["4k".to_owned()], std::slice::from_ref(&own)).unwrap(), [own]);
    }
}
