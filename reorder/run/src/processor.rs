//! Refuses programs for other processors: they could not be run, or an emulator would be recorded or measured instead.

use std::path::Path;

use reorder_base::error::{Error, Result};
use reorder_base::processor::Processor;
use reorder_image::elf::file::ElfFile;
use reorder_system::arch;
use reorder_system::mapped::map_image;

/// Refuses to record if this processor cannot be traced.
///
/// # Errors
/// On all but x86-64 and AArch64.
pub fn check_host() -> Result<()> {
    if arch::PROCESSOR.is_some() {
        return Ok(());
    }
    Err(Error::usage(format!("programs are recorded on x86-64 and AArch64, and this reorder is for {HOST}"))
        .with_hint(format!("on {HOST}, {OTHER_RECORDERS}")))
}

/// The purpose of running a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Record which functions run first.
    Record,
    /// Count faults and take times.
    Measure,
    /// Compare an original with its result.
    Check,
}

impl Purpose {
    /// As a command, and with an `s`.
    fn verb(self) -> &'static str {
        match self {
            Self::Record => "record",
            Self::Measure => "measure",
            Self::Check => "check",
        }
    }

    /// What can be done here instead with a program for another processor.
    fn other_way(self) -> &'static str {
        match self {
            Self::Record => OTHER_RECORDERS,
            Self::Measure => "simulate its startup: reorder simulate --help",
            Self::Check => "leave out --check, and compare both where they run",
        }
    }
}

/// Refuses an image for `machine` unless this processor runs it.
///
/// # Errors
/// Images for another processor.
pub fn check(processor: Processor, purpose: Purpose) -> Result<()> {
    if arch::PROCESSOR == Some(processor) {
        return Ok(());
    }
    let (verb, other_way) = (purpose.verb(), purpose.other_way());
    let there = |name: &str| format!("{verb} it on {name} with a reorder built for it, or {other_way}");
    let (name, cure) = match processor {
        Processor::X86_64 => ("x86-64", there("x86-64")),
        Processor::Aarch64 => ("AArch64", there("AArch64")),
        Processor::Other => ("another processor", other_way.to_owned()),
    };
    Err(Error::usage(format!("this image is for {name}, and this reorder {verb}s what is for {HOST}"))
        .with_hint(cure))
}

/// Refuses a program for another processor before the system hands it to an emulator.
///
/// # Errors
/// ELF programs for another processor; the caller reports all other errors when it runs the program.
pub fn check_program(path: &Path, purpose: Purpose) -> Result<()> {
    let Ok(bytes) = map_image(path) else { return Ok(()) };
    match ElfFile::parse_any_processor(&bytes) {
        Ok(file) => check(file.processor, purpose).map_err(|error| error.in_file(path)),
        Err(_) => Ok(()),
    }
}

/// Its name in messages.
const HOST: &str = match arch::PROCESSOR {
    Some(Processor::X86_64) => "x86-64",
    Some(Processor::Aarch64) => "AArch64",
    _ => std::env::consts::ARCH,
};

const OTHER_RECORDERS: &str =
    "use a recorder that runs there and whose traces can be read (reorder traces --help)";
