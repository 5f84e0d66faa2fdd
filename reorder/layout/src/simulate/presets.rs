//! Models of memory under their names: those that come with the program, and a repository's own.
//!
//! A name, once published, keeps its meaning: baselines and reports refer to it.

use layout_algos::score::FaultModel;
use serde::Serialize;

use reorder_base::error::{Error, Result};

/// A model of memory with the name that reports, baselines and `reorder.toml` know it by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryModel {
    /// As in `--model` and `reorder.toml`.
    pub name: String,
    /// What it stands for, in a line.
    pub title: String,
    /// The model in numbers.
    #[serde(skip)]
    pub model: FaultModel,
}

/// A model that comes with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// As in `--model` and `reorder.toml`.
    pub name: &'static str,
    /// What it stands for, in a line.
    pub title: &'static str,
    /// Where its numbers come from, and how far they were checked.
    pub source: &'static str,
    /// The model in numbers.
    pub model: FaultModel,
}

/// All models that come with the program.
pub const PRESETS: [Preset; 7] = [
    Preset {
        name: "linux-4k",
        title: "4 KiB pages",
        source: "Linux with the file on disk and read-ahead off: each page of 4 KiB faults once (mm/filemap.c, \
                 filemap_fault); checked by page table, page cache and sampled faults",
        model: FaultModel::Pages { size: 4 << 10 },
    },
    Preset {
        name: "linux-4k-faultaround-64k",
        title: "64 KiB fault-around",
        source: "Linux with the file in memory: a fault maps the aligned 64 KiB around it (mm/memory.c, do_fault_around, \
                 fault_around_bytes); checked by page table and sampled faults",
        model: FaultModel::FaultAround { block: 64 << 10 },
    },
    Preset {
        name: "linux-readahead-128k",
        title: "128 KiB read-around",
        source: "Linux up to 6.16 with the file on disk: a fault reads 128 KiB that begin 64 KiB before it (mm/filemap.c, \
                 do_sync_mmap_readahead; read_ahead_kb); not checked yet: the tests need such a kernel",
        model: FaultModel::ReadAround { page: 4 << 10, window: 128 << 10, before: 64 << 10 },
    },
    Preset {
        name: "linux-6.17-readahead-128k",
        title: "128 KiB read-ahead",
        source: "Linux from 6.17 on with the file on disk: a fault in code reads the 128 KiB from its page on, not beyond the \
                 mapping (mm/filemap.c, do_sync_mmap_readahead); checked by the page cache",
        model: FaultModel::ReadAround { page: 4 << 10, window: 128 << 10, before: 0 },
    },
    Preset {
        name: "android-16k",
        title: "16 KiB pages",
        source: "Android 15 and later on devices with 16 KiB pages (source.android.com, 16 KB page size), read-ahead off: each \
                 page faults once; not checked on a device",
        model: FaultModel::Pages { size: 16 << 10 },
    },
    Preset {
        name: "ios-16k",
        title: "16 KiB pages",
        source: "iOS, and macOS on arm64 (WWDC 2018, iOS Memory Deep Dive: pages are typically 16 KB): each page of a mapped \
                 image is read and decrypted by itself; not checked on a device",
        model: FaultModel::Pages { size: 16 << 10 },
    },
    Preset {
        name: "macos-4k",
        title: "4 KiB pages",
        source: "macOS on x86-64, whose processors have pages of 4 KiB (PAGE_SIZE in mach/i386/vm_param.h): each page of a \
                 mapped image is read by itself; not checked on a device",
        model: FaultModel::Pages { size: 4 << 10 },
    },
];

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
        match self.model {
            FaultModel::Pages { size } => size,
            FaultModel::FaultAround { block } => block,
            FaultModel::ReadAround { page, .. } => page,
        }
    }
}

impl From<Preset> for MemoryModel {
    fn from(preset: Preset) -> Self {
        Self { name: preset.name.to_owned(), title: preset.title.to_owned(), model: preset.model }
    }
}

/// The models that an ELF image is judged by unless others are asked for.
#[must_use]
pub fn default_for_elf() -> Vec<MemoryModel> {
    const USUAL: [&str; 4] = ["linux-4k", "linux-4k-faultaround-64k", "linux-readahead-128k", "android-16k"];
    PRESETS.iter().filter(|preset| USUAL.contains(&preset.name)).map(|&preset| preset.into()).collect()
}

/// The same for a Mach-O image for the processor that linkers call `architecture`.
#[must_use]
pub fn default_for_macho(architecture: &str) -> Vec<MemoryModel> {
    let usual = if architecture == "x86_64" { "macos-4k" } else { "ios-16k" };
    PRESETS.iter().filter(|preset| preset.name == usual).map(|&preset| preset.into()).collect()
}

/// The models called `names`, of these `custom` ones and of the presets, in the order of the names.
///
/// # Errors
/// A name that nothing has, with those that there are.
pub fn find(names: &[String], custom: &[MemoryModel]) -> Result<Vec<MemoryModel>> {
    names.iter().map(|name| find_one(name, custom)).collect()
}

fn find_one(name: &str, custom: &[MemoryModel]) -> Result<MemoryModel> {
    let preset = || PRESETS.iter().find(|preset| preset.name == name).map(|&preset| preset.into());
    custom.iter().find(|model| model.name == name).cloned().or_else(preset).ok_or_else(|| {
        let own = custom.iter().map(|model| model.name.as_str());
        let known: Vec<&str> = PRESETS.iter().map(|preset| preset.name).chain(own).collect();
        Error::usage(format!("no model of memory is called {name}")).with_hint(format!(
            "there are {}; others are defined by [model.NAME] in reorder.toml",
            known.join(", ")
        ))
    })
}
