//! One program linked twice with its functions in another order: the linker is the oracle for relocation.
//!
//! All functions are aligned to 16 bytes and a fixed one closes the list, so the sizes of all sections agree, as
//! they do after relocating in place. Unwind entries and symbols keep the order of the one object file.

use std::ops::Range;
use std::path::Path;
use std::process::Command;

const PROGRAM: &str = include_str!("program.c");

/// The functions in the order of the first link; the second link uses [`NEW_ORDER`].
const OLD_ORDER: [&str; 9] =
    ["triple", "fivefold", "pick", "interpret", "compare", "sorted", "hand_over", "checked", "prepare"];
const NEW_ORDER: [&str; 9] =
    ["sorted", "prepare", "interpret", "triple", "checked", "pick", "fivefold", "hand_over", "compare"];

/// The two images and where their function symbols lie.
pub(crate) struct Relinked {
    /// Linked in the first order.
    pub(crate) old: Vec<u8>,
    /// Linked in the second order.
    pub(crate) new: Vec<u8>,
    /// (name, address in `old`, address in `new`) of the functions that were ordered.
    pub(crate) symbols: Vec<(String, u64, u64)>,
    /// Addresses in `new` of start code that no function symbol of known size or unwind entry covers.
    pub(crate) start_code: Range<u64>,
}

impl Relinked {
    /// Compiles and links twice with these additional compiler options.
    pub(crate) fn build(options: &[&str]) -> Self {
        Self::build_with(options, "")
    }

    /// [`Self::build`] with `addition` at the end of the source.
    pub(crate) fn build_with(options: &[&str], addition: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let source = directory.path().join("program.c");
        std::fs::write(&source, format!("{PROGRAM}\n{addition}\n")).expect("the source is written");
        let object = directory.path().join("program.o");
        run(Command::new("gcc")
            .args(["-O2", "-fPIC", "-ffunction-sections", "-falign-functions=16", "-c"])
            .args(options)
            .arg(&source)
            .arg("-o")
            .arg(&object));
        let old = link(directory.path(), &object, "old", &OLD_ORDER, options);
        let new = link(directory.path(), &object, "new", &NEW_ORDER, options);
        let symbols = OLD_ORDER
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), old.find(name)?, new.find(name)?)))
            .collect();
        let start_code =
            new.find("deregister_tm_clones").unwrap_or_default()..new.find("frame_dummy").unwrap_or_default();
        Self { old: old.bytes, new: new.bytes, symbols, start_code }
    }
}

struct Linked {
    bytes: Vec<u8>,
    names: String,
}

impl Linked {
    fn find(&self, name: &str) -> Option<u64> {
        let line = self.names.lines().find(|line| line.split(' ').next_back() == Some(name))?;
        Some(u64::from_str_radix(&line[..16], 16).expect("nm prints an address"))
    }
}

fn link(directory: &Path, object: &Path, name: &str, order: &[&str], options: &[&str]) -> Linked {
    let is_own_kind = options.iter().any(|option| matches!(*option, "-shared" | "-static-pie"));
    let kind = if options.contains(&"-shared") { "-shared" } else { "-pie" };
    let default = run(Command::new("ld.bfd").arg(kind).arg("--verbose"));
    let script =
        default.split("==================================================").nth(1).expect("a script");
    let sections: String =
        order.iter().chain(&["last"]).map(|function| format!("    *(.text.{function})\n")).collect();
    let first = script.find("*(.text.unlikely").expect("the script orders code");
    // The one place that lists the code comes first; the rest of the script stays the default.
    let script = format!("{}\n{sections}    {}", &script[..first], &script[first..]);
    let script_file = directory.join(format!("{name}.ld"));
    std::fs::write(&script_file, script).expect("the script is written");
    let program = directory.join(name);
    run(Command::new("gcc")
        .args(["-fuse-ld=bfd", "-Wl,--build-id=sha1"])
        .args((!is_own_kind).then_some("-pie"))
        .args(options)
        .arg(format!("-Wl,-T,{}", script_file.display()))
        .arg(object)
        .arg("-o")
        .arg(&program));
    let names = run(Command::new("nm").arg(&program));
    Linked { bytes: std::fs::read(&program).expect("the program is there"), names }
}

/// What a tool prints; it has to succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
