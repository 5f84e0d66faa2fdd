//! Families of linkers, recognised by the version that they print.
//!
//! Takes a program, runs it with `--version`, and with `-v` where that does not help; gives its family and the first
//! line that it printed. Reads a bounded part of the output.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use reorder_base::error::{Error, Result};

/// A version takes a few lines; what prints more is no linker.
const MAX_OUTPUT: u64 = 16 << 10;

/// Linkers that understand the same options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub(crate) enum Family {
    /// LLVM's linker for ELF: `ld.lld`.
    Lld,
    /// LLVM's linker for Mach-O: `ld64.lld`.
    LldMachO,
    /// Apple's linkers: ld64 and ld-prime.
    Ld64,
    /// `ld.gold`.
    Gold,
    /// GNU `ld`.
    Bfd,
    /// `mold`.
    Mold,
    /// `wild`.
    Wild,
    /// Any other linker.
    Unknown,
}

/// What `program` is, and the first line that it says about its version.
///
/// # Errors
/// It cannot be started, or it is a compiler, or lld under a name that makes it no linker.
pub(crate) fn identify(program: &Path, variables: &BTreeMap<OsString, OsString>) -> Result<(Family, String)> {
    let mut said = ask(program, "--version", variables)?;
    if classify(&said) == Some(Family::Unknown) {
        // Apple's linkers do not know the long option.
        let short = ask(program, "-v", variables)?;
        if classify(&short) != Some(Family::Unknown) {
            said = short;
        }
    }
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned();
    let Some(family) = classify(&said) else {
        let hint = if first.starts_with("lld is a generic driver") {
            "name ld.lld (ELF) or ld64.lld (Mach-O), which are links to it: --reorder-linker=ld.lld"
        } else {
            "compilers are given with --reorder-driver or REORDER_DRIVER"
        };
        return Err(Error::usage(format!("is not a linker: {first}")).in_file(program).with_hint(hint));
    };
    Ok((family, first))
}

/// The family of what prints `said` as its version; none for what is surely no linker.
fn classify(said: &str) -> Option<Family> {
    let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if said.contains("@(#)PROGRAM:ld") {
        Some(Family::Ld64)
    } else if first.starts_with("mold ") {
        Some(Family::Mold)
    } else if first.to_ascii_lowercase().starts_with("wild ") {
        Some(Family::Wild)
    } else if first.starts_with("GNU gold") {
        Some(Family::Gold)
    } else if first.starts_with("GNU ld") {
        Some(Family::Bfd)
    } else if first.contains("LLD ") {
        // Only the linker for ELF claims to be compatible with GNU's.
        Some(if first.contains("compatible with GNU linkers") { Family::Lld } else { Family::LldMachO })
    } else if is_compiler(first) {
        None
    } else {
        Some(Family::Unknown)
    }
}

/// Whether a program whose version begins with `first` is a compiler, or lld without a choice of its kind.
fn is_compiler(first: &str) -> bool {
    let words = ["gcc", "g++", "cc", "c++"];
    first.contains("clang version")
        || first.starts_with("lld is a generic driver")
        || first.split([' ', '-']).any(|word| words.contains(&word))
}

/// Standard output and, after it, standard error of `program OPTION`.
fn ask(program: &Path, option: &str, variables: &BTreeMap<OsString, OsString>) -> Result<String> {
    let failed = |source| {
        Error::io(program, source)
            .with_hint("give a linker with --reorder-linker=PATH or REORDER_LINKER=PATH")
    };
    let mut errors = tempfile::tempfile().map_err(failed)?;
    let mut child = Command::new(program)
        .arg(option)
        .env_clear()
        .envs(variables)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors.try_clone().map_err(failed)?)
        .spawn()
        .map_err(failed)?;
    let mut said = Vec::new();
    if let Some(output) = child.stdout.take() {
        output.take(MAX_OUTPUT).read_to_end(&mut said).map_err(failed)?;
    }
    child.wait().map_err(failed)?;
    std::io::Seek::rewind(&mut errors).map_err(failed)?;
    errors.take(MAX_OUTPUT).read_to_end(&mut said).map_err(failed)?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linkers_say_what_they_are() {
        let cases = [
            ("Debian LLD 22.1.8 (compatible with GNU linkers)\n", Some(Family::Lld)),
            ("LLD 22.1.2 (/checkout/llvm 1cb4e38) (compatible with GNU linkers)\n", Some(Family::Lld)),
            ("Debian LLD 22.1.8\n", Some(Family::LldMachO)),
            ("GNU ld (GNU Binutils for Debian) 2.40\nCopyright\n", Some(Family::Bfd)),
            ("GNU ld version 2.30-123.el8\n", Some(Family::Bfd)),
            ("GNU gold (GNU Binutils for Debian 2.40) 1.16\n", Some(Family::Gold)),
            ("mold 1.10.1 (compatible with GNU ld)\n", Some(Family::Mold)),
            ("Wild version 0.6.0 (compatible with GNU linkers)\n", Some(Family::Wild)),
            ("@(#)PROGRAM:ld  PROJECT:ld-1015.7\nBUILD 18:48:43 May 22 2024\n", Some(Family::Ld64)),
            ("@(#)PROGRAM:ld  PROJECT:ld64-609\nLTO support using: LLVM\n", Some(Family::Ld64)),
            ("ld: unknown option: --version\n", Some(Family::Unknown)),
            ("", Some(Family::Unknown)),
            ("lld is a generic driver.\nInvoke ld.lld (Unix), ld64.lld (macOS) instead\n", None),
            ("Debian clang version 22.1.8\n", None),
            ("cc (Debian 12.2.0-14+deb12u1) 12.2.0\n", None),
            ("x86_64-linux-gnu-gcc-12 (Debian 12.2.0-14) 12.2.0\n", None),
        ];
        for (said, family) in cases {
            assert_eq!(classify(said), family, "{said}");
        }
    }
}
