//! One program linked twice with its functions in different orders: the linker is the oracle for relocation.
//!
//! All functions are aligned to 16 bytes and a fixed one is last, so the sizes of all sections agree, as
//! they do after relocating in place. Unwind entries and symbols keep the order of the one object file.

use std::ops::Range;
use std::path::Path;
use std::process::Command;

use crate::layout::{header_field, section, sections};
use reorder_base::address::Address;
use reorder_base::tool_versions::llvm;
use reorder_verify::recover_moves;

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
    /// Addresses in `new` of startup code that no function symbol of known size or unwind entry covers.
    pub(crate) start_code: Range<u64>,
}

/// The compiler and linker that make a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// GNU's for x86-64.
    Native,
    /// GNU's for AArch64.
    Aarch64,
    /// LLVM's for AArch64.
    LlvmAarch64,
}

impl Toolchain {
    fn tool(self, name: &str) -> String {
        match self {
            Self::Native => name.to_owned(),
            Self::Aarch64 | Self::LlvmAarch64 => format!("aarch64-linux-gnu-{name}"),
        }
    }

    /// The compiler that also starts the linker.
    fn compiler(self) -> Command {
        match self {
            Self::LlvmAarch64 => {
                let mut clang = Command::new(llvm("clang"));
                clang.args(["--target=aarch64-linux-gnu", "-Wno-unused-command-line-argument"]);
                clang
            }
            _ => Command::new(self.tool("gcc")),
        }
    }
}

impl Relinked {
    /// Compiles and links twice with these additional compiler options.
    pub(crate) fn build(options: &[&str]) -> Self {
        Self::build_with(options, "")
    }

    /// [`Self::build`] with `addition` at the end of the source.
    pub(crate) fn build_with(options: &[&str], addition: &str) -> Self {
        Self::build_by(Toolchain::Native, options, addition)
    }

    /// [`Self::build_with`] for any toolchain.
    pub(crate) fn build_by(toolchain: Toolchain, options: &[&str], addition: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let source = directory.path().join("program.c");
        std::fs::write(&source, format!("{PROGRAM}\n{addition}\n")).expect("the source is written");
        let object = directory.path().join("program.o");
        run(toolchain
            .compiler()
            .args(["-O2", "-fPIC", "-ffunction-sections", "-falign-functions=16", "-c"])
            .args(options)
            .arg(&source)
            .arg("-o")
            .arg(&object));
        let old = link(toolchain, directory.path(), &object, "old", &OLD_ORDER, options);
        let new = link(toolchain, directory.path(), &object, "new", &NEW_ORDER, options);
        let symbols = OLD_ORDER
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), old.find(name)?, new.find(name)?)))
            .collect();
        let start_code =
            new.find("deregister_tm_clones").unwrap_or_default()..new.find("frame_dummy").unwrap_or_default();
        Self { old: old.bytes, new: new.bytes, symbols, start_code }
    }

    /// Linkers sort these tables by position; relocating in place keeps their order.
    pub(crate) fn keep_relocations_in_old_order(&mut self) {
        let moves = recover_moves(&self.old, &self.new).expect("the pair corresponds");
        let sections = sections(&self.new);
        let table = section(&sections, ".rela.text");
        let entries = |image: &[u8]| -> Vec<(u64, Vec<u8>)> {
            image[table.offset..table.offset + table.size]
                .chunks(24)
                .map(|entry| (header_field(entry, 0) as u64, entry.to_vec()))
                .collect()
        };
        let mut linked = entries(&self.new);
        for (index, (place, _)) in entries(&self.old).into_iter().enumerate() {
            let followed = moves.map(Address(place)).0;
            let at =
                linked.iter().position(|(place, _)| *place == followed).expect("an entry for the same place");
            let (_, entry) = linked.remove(at);
            let offset = table.offset + index * 24;
            self.new[offset..offset + 24].copy_from_slice(&entry);
        }
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

fn link(
    toolchain: Toolchain,
    directory: &Path,
    object: &Path,
    name: &str,
    order: &[&str],
    options: &[&str],
) -> Linked {
    let is_own_kind = options.iter().any(|option| matches!(*option, "-shared" | "-static-pie"));
    let order = match toolchain {
        Toolchain::LlvmAarch64 => by_symbols(directory, name, order),
        _ => by_script(toolchain, directory, name, order, options),
    };
    let program = directory.join(name);
    run(toolchain
        .compiler()
        .args(order)
        .arg("-Wl,--build-id=sha1")
        .args((!is_own_kind).then_some("-pie"))
        .args(options)
        .arg(object)
        .arg("-o")
        .arg(&program));
    let names = run(Command::new(toolchain.tool("nm")).arg(&program));
    Linked { bytes: std::fs::read(&program).expect("the program is there"), names }
}

/// Options that make LLVM's linker put functions into this order.
fn by_symbols(directory: &Path, name: &str, order: &[&str]) -> Vec<String> {
    let list = directory.join(format!("{name}.order"));
    std::fs::write(&list, order.join("\n")).expect("the order is written");
    let linker = run(Command::new("sh").args(["-c", &format!("command -v {}", llvm("ld.lld"))]));
    vec![
        format!("--ld-path={}", linker.trim()),
        format!("-Wl,--symbol-ordering-file,{}", list.display()),
        "-Wl,--no-warn-symbol-ordering".to_owned(),
    ]
}

/// Options that make GNU's linker put functions into this order.
fn by_script(
    toolchain: Toolchain,
    directory: &Path,
    name: &str,
    order: &[&str],
    options: &[&str],
) -> Vec<String> {
    let kind = if options.contains(&"-shared") { "-shared" } else { "-pie" };
    let default = run(Command::new(toolchain.tool("ld.bfd")).arg(kind).arg("--verbose"));
    let script =
        default.split("==================================================").nth(1).expect("a script");
    let sections: String =
        order.iter().chain(&["last"]).map(|function| format!("    *(.text.{function})\n")).collect();
    let first = script.find("*(.text.unlikely").expect("the script orders code");
    // Code optimised for size is not aligned; a function whose address is taken must keep an even address.
    let before = match options.contains(&"-Os") {
        true => script[..first].replacen(".text           :", ".text : SUBALIGN(2)", 1),
        false => script[..first].to_owned(),
    };
    // The order comes before the script's only list of code; the rest of the script stays the default.
    let script = format!("{before}\n{sections}    {}", &script[first..]);
    let script_file = directory.join(format!("{name}.ld"));
    std::fs::write(&script_file, script).expect("the script is written");
    vec!["-fuse-ld=bfd".to_owned(), format!("-Wl,-T,{}", script_file.display())]
}

/// What a tool prints; panics when it fails.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
