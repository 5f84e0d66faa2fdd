//! The flags that say how an image is rewritten, and which of them apply to one format only.

use clap::{Args, ValueEnum};

use reorder_base::error::{Error, Result};
use reorder_layout::opened::refuse_architecture;
use reorder_relocate::RelocateOptions;
use reorder_relocate::apply::macho::MachOOptions;
use reorder_relocate::debug::DebugPolicy;
use reorder_relocate::elf::copies::{KeptRelocations, UnlistedPointers};

/// Flags for Mach-O files.
#[derive(Args, Clone, Debug)]
pub(crate) struct MachOArguments {
    /// Move only this architecture of a universal Mach-O file: arm64, x86_64
    #[arg(long = "arch", value_name = "NAME")]
    pub architecture: Option<String>,
    /// Refuse a Mach-O image if more than this share of the code used at startup is pinned, in percent of its bytes
    /// [default: 25]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100), verbatim_doc_comment)]
    most_pinned: Option<u8>,
    /// Continue although unknown Swift records pin many functions
    #[arg(long)]
    allow_swift_pins: bool,
}

impl MachOArguments {
    /// The library's options.
    pub(crate) fn options(&self) -> MachOOptions {
        let defaults = MachOOptions::default();
        MachOOptions {
            most_pinned_percent: self.most_pinned.unwrap_or(defaults.most_pinned_percent),
            allow_swift_pins: self.allow_swift_pins,
        }
    }

    /// Refuses these flags for an ELF file.
    ///
    /// # Errors
    /// When one of them is given.
    pub(crate) fn refuse_for_elf(&self) -> Result<()> {
        refuse_architecture(self.architecture.as_deref())?;
        let flag = match (self.most_pinned, self.allow_swift_pins) {
            (Some(_), _) => "--most-pinned",
            (None, true) => "--allow-swift-pins",
            (None, false) => return Ok(()),
        };
        Err(Error::usage(format!("{flag} applies only to Mach-O files"))
            .with_hint(format!("leave out {flag}")))
    }
}

/// How an image is rewritten.
#[derive(Args, Clone, Debug)]
pub(crate) struct RelocateArguments {
    /// How to treat debug information, whose addresses go stale [default: update]
    #[arg(long, value_enum, value_name = "HOW")]
    debug: Option<DebugArgument>,
    /// Keep the build-id although the layout differs
    #[arg(long)]
    keep_build_id: bool,
    /// Sort unwind entries by the new addresses of their functions, so that a compressed file is smaller; --compress does so by itself
    #[arg(long)]
    sort_unwind_entries: bool,
    /// With copies of code: drop the relocations that the linker kept (--emit-relocs), because they would not describe the copies
    #[arg(long)]
    drop_relocations: bool,
    /// With copies of code, in a program at a fixed address: treat numbers that look like pointers to functions as pointers, and
    /// change them to lead to the copies. A number that only looks like one would be changed
    #[arg(long)]
    assume_pointers: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DebugArgument {
    /// Update it; the size of the file may change
    Update,
    /// Empty the debug sections; the file keeps its size until it is stripped
    Drop,
    /// Leave it as it is, for tools that translate addresses by the map; needs --map
    Map,
    /// Leave it as it is: debuggers will show wrong lines and variables
    KeepStale,
}

impl RelocateArguments {
    /// Refuses these flags for a Mach-O image, which contains no debug information and always gets a new UUID.
    ///
    /// # Errors
    /// When one of these flags is given.
    pub(crate) fn refuse_for_macho(&self) -> Result<()> {
        if self.sort_unwind_entries {
            return Err(Error::usage("--sort-unwind-entries applies only to ELF images")
                .with_hint("leave out --sort-unwind-entries"));
        }
        if self.drop_relocations {
            return Err(Error::usage("--drop-relocations applies only to ELF images")
                .with_hint("leave out --drop-relocations"));
        }
        if self.assume_pointers {
            return Err(Error::usage("--assume-pointers applies only to ELF images")
                .with_hint("leave out --assume-pointers"));
        }
        match (self.debug, self.keep_build_id) {
            (Some(_), _) => Err(Error::usage(
                "--debug applies only to ELF images: Mach-O images contain no debug information",
            )
            .with_hint("leave out --debug; run dsymutil on the output for a new dSYM")),
            (None, true) => Err(Error::usage(
                "the UUID of a Mach-O image cannot be kept: old dSYMs would show wrong functions",
            )
            .with_hint("leave out --keep-build-id")),
            (None, false) => Ok(()),
        }
    }

    /// Refuses `--debug map` if no map is written.
    ///
    /// # Errors
    /// `--debug map` without one.
    pub(crate) fn check_map(&self, is_written: bool) -> Result<()> {
        match self.debug {
            Some(DebugArgument::Map) if !is_written => {
                Err(Error::usage("--debug map needs an address map, and none would be written")
                    .with_hint("use `reorder apply` with --map FILE"))
            }
            _ => Ok(()),
        }
    }

    /// The library's options.
    pub(crate) fn options(&self) -> RelocateOptions {
        RelocateOptions {
            debug: match self.debug {
                None | Some(DebugArgument::Update) => DebugPolicy::Update,
                Some(DebugArgument::Drop) => DebugPolicy::Drop,
                Some(DebugArgument::Map | DebugArgument::KeepStale) => DebugPolicy::KeepStale,
            },
            keep_build_id: self.keep_build_id,
            sort_unwind_entries: self.sort_unwind_entries,
            relocations: match self.drop_relocations {
                true => KeptRelocations::LeaveOut,
                false => KeptRelocations::Refuse,
            },
            unlisted: match self.assume_pointers {
                true => UnlistedPointers::Assume,
                false => UnlistedPointers::Keep,
            },
        }
    }
}
