//! Refuses what another processor runs: an emulator would be traced instead of the program, or nothing could be.

use std::path::Path;

use crate::arch;
use crate::error::{Error, Result};
use crate::image::elf::file::ElfFile;
use crate::image::elf::machine::Machine;
use crate::image::mapped::map_image;

/// Refuses to record on this machine if its processor cannot be traced.
///
/// # Errors
/// On all but x86-64 and AArch64.
pub(super) fn check_host() -> Result<()> {
    if arch::MACHINE.is_some() {
        return Ok(());
    }
    Err(Error::usage(format!("programs are recorded on x86-64 and AArch64, and this reorder is for {HOST}"))
        .with_hint(format!("on {HOST}, {OTHER_RECORDERS}")))
}

/// Refuses an image for `machine` unless this processor runs it.
///
/// # Errors
/// Images for another processor.
pub(super) fn check(machine: Machine) -> Result<()> {
    if arch::MACHINE == Some(machine) {
        return Ok(());
    }
    let (name, cure) = match machine {
        Machine::X86_64 => {
            ("x86-64", format!("record it on x86-64 with a reorder built for it, or {OTHER_RECORDERS}"))
        }
        Machine::Aarch64 => {
            ("AArch64", format!("record it on AArch64 with a reorder built for it, or {OTHER_RECORDERS}"))
        }
        Machine::Other => ("another processor", OTHER_RECORDERS.to_owned()),
    };
    Err(Error::usage(format!("this image is for {name}, and this reorder records what is for {HOST}"))
        .with_hint(cure))
}

/// Refuses a program for another processor before the system hands it to an emulator, whose own functions would be
/// recorded.
///
/// # Errors
/// ELF programs for another processor; all else is left to whoever starts it.
pub(super) fn check_program(path: &Path) -> Result<()> {
    let Ok(bytes) = map_image(path) else { return Ok(()) };
    match ElfFile::parse_any_machine(&bytes) {
        Ok(file) => check(file.machine).map_err(|error| error.in_file(path)),
        Err(_) => Ok(()),
    }
}

/// As it is called here.
const HOST: &str = match arch::MACHINE {
    Some(Machine::X86_64) => "x86-64",
    Some(Machine::Aarch64) => "AArch64",
    _ => std::env::consts::ARCH,
};

const OTHER_RECORDERS: &str =
    "use a recorder that runs there and whose traces can be read (reorder traces --help)";
