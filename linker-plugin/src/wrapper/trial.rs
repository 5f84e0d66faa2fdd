//! The link that shows what there is to order: as requested, but with symbols and a map, and without debug information.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::invocation::Invocation;
use super::linker_family::Family;
use super::route::Route;

/// The arguments of the trial link, which leaves an image at `output` and a map at `map`.
#[must_use]
pub(crate) fn arguments(
    invocation: &Invocation,
    family: Family,
    route: Route,
    output: &Path,
    map: &Path,
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::with_capacity(invocation.expanded.len() + 8);
    let mut given = invocation.expanded.iter().peekable();
    while let Some(argument) = given.next() {
        if !takes_names_away(argument) {
            arguments.push(argument.clone());
        } else if argument == "--compress-debug-sections" {
            // Its value.
            given.next();
        }
    }
    arguments.extend(map_arguments(family, map));
    // Debug information is most of many links, and does not affect the layout.
    arguments.push(if is_mach_o(family) { "-S" } else { "--strip-debug" }.into());
    if route == Route::DefaultScript {
        // Prints the script.
        arguments.push("--verbose".into());
    }
    arguments.extend(output_arguments(invocation, family, output));
    arguments
}

/// The arguments that make a linker write a map to `map`. The last one counts in all of them.
#[must_use]
pub(crate) fn map_arguments(family: Family, map: &Path) -> Vec<OsString> {
    if is_mach_o(family) {
        return vec!["-map".into(), map.into()];
    }
    let mut argument = OsString::from("-Map=");
    argument.push(map);
    vec![argument]
}

/// The arguments that make a linker write its output to `output` as if it were written to its place.
#[must_use]
pub(crate) fn output_arguments(invocation: &Invocation, family: Family, output: &Path) -> Vec<OsString> {
    let mut arguments = vec!["-o".into(), output.into()];
    // The output's path is the name of a dynamic library, unless another one is given.
    if is_mach_o(family) && !invocation.has(&["-final_output"]) {
        arguments.extend(["-final_output".into(), invocation.output.clone().into()]);
    }
    arguments
}

/// Whether the linker is one for Mach-O.
#[must_use]
pub(crate) fn is_mach_o(family: Family) -> bool {
    matches!(family, Family::Ld64 | Family::LldMachO)
}

/// Whether the linker prints a map to its standard output: a further one would take its place.
#[must_use]
pub(crate) fn prints_map(invocation: &Invocation) -> bool {
    let words = |words: &[OsString]| words.windows(2).any(|pair| pair[0] == "-Map" && pair[1] == "-");
    invocation.has(&["-M", "--print-map", "-Map=-", "--Map=-"]) || words(&invocation.expanded)
}

/// Options that remove symbols, or need what the trial leaves out.
fn takes_names_away(argument: &OsStr) -> bool {
    let whole: [&[u8]; 13] = [
        b"-s",
        b"-S",
        b"-x",
        b"-X",
        b"--strip-all",
        b"--strip-debug",
        b"--discard-all",
        b"--discard-locals",
        b"-strip-all",
        b"--gdb-index",
        b"--print-map",
        b"-M",
        b"-Map=-",
    ];
    whole.contains(&argument.as_bytes()) || argument.as_bytes().starts_with(b"--compress-debug-sections")
}
