//! Refuses programs for other processors: they could not be run, or an emulator would be recorded or measured instead.

use std::path::Path;

use reorder_base::error::{Error, Result};
use reorder_base::hint::{Hint, RunPurpose};
use reorder_base::processor::Processor;
use reorder_image::elf::file::ElfFile;
use reorder_system::arch;
use reorder_system::mapped::map_image;

/// Refuses to record if this processor cannot be traced.
///
/// # Errors
/// On all but x86-64 and AArch64.
pub(crate) fn check_host() -> Result<()> {
    if arch::PROCESSOR.is_some() {
        return Ok(());
    }
    Err(Error::usage(format!("programs are recorded on x86-64 and AArch64, and this reorder is for {HOST}"))
        .with_hint(Hint::OtherRecorder {
            advice: format!("on {HOST}, use a recorder that runs there and whose traces can be read"),
        }))
}

/// What is done with a program.
fn verb(purpose: RunPurpose) -> &'static str {
    match purpose {
        RunPurpose::Record => "record",
        RunPurpose::Measure => "measure",
        RunPurpose::Check => "check",
    }
}

/// Refuses an image for another processor unless this processor runs it.
///
/// # Errors
/// Images for another processor.
pub fn check(processor: Processor, purpose: RunPurpose) -> Result<()> {
    if arch::PROCESSOR == Some(processor) {
        return Ok(());
    }
    let name = match processor {
        Processor::X86_64 => Some("x86-64"),
        Processor::Aarch64 => Some("AArch64"),
        Processor::Other => None,
    };
    let (shown, verb) = (name.unwrap_or("another processor"), verb(purpose));
    Err(Error::usage(format!("this image is for {shown}, and this reorder {verb}s what is for {HOST}"))
        .with_hint(Hint::OtherSystem { processor: name, purpose }))
}

/// Refuses a program for another processor before the system hands it to an emulator.
///
/// # Errors
/// ELF programs for another processor; the caller reports all other errors when it runs the program.
pub fn check_program(path: &Path, purpose: RunPurpose) -> Result<()> {
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
