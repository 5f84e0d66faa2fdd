//! What every input must satisfy, target by target: the fuzzer generates inputs (`fuzz/`), and a test replays those that
//! it kept (`tests/fuzz_corpus.rs`).

mod allocation;
mod apply;
mod baseline;
mod copies_fields;
mod debug;
mod directory;
mod elf_fields;
mod image;
mod instructions;
mod layout_map;
mod link_map;
mod linker_object;
mod linker_script;
mod macho;
mod macho_apply;
mod macho_code;
mod macho_fields;
mod macho_tables;
mod macho_verify;
mod order_file;
mod readers;
mod seed_images;
mod verify;
mod wheel;

pub use allocation::Counted;

/// A target whose inputs are files of its own format.
type Check = fn(&[u8]);

/// The targets by name; those of trace readers are in `readers`.
const CHECKS: &[(&str, Check)] = &[
    ("apply", apply::check),
    ("baseline", baseline::check),
    ("copies_fields", copies_fields::check),
    ("debug", debug::check),
    ("elf_fields", elf_fields::check),
    ("image", image::check),
    ("layout_map", layout_map::check),
    ("link_map", link_map::check),
    ("linker_object", linker_object::check),
    ("linker_script", linker_script::check),
    ("macho", macho::check),
    ("macho_apply", macho_apply::check),
    ("macho_code", macho_code::check),
    ("macho_fields", macho_fields::check),
    ("macho_tables", macho_tables::check),
    ("macho_verify", macho_verify::check),
    ("order_file", order_file::check),
    ("trace", readers::detect_and_read),
    ("verify", verify::check),
    ("wheel", wheel::check),
];

/// Gives `bytes` to a target.
///
/// # Panics
/// When the input violates a property of the target, which is a finding, or no target has this name.
pub fn check(target: &str, bytes: &[u8]) {
    match CHECKS.iter().find(|(name, _)| *name == target) {
        Some((_, check)) => check(bytes),
        None => readers::read(target, bytes),
    }
}

/// The names of all targets.
pub fn targets() -> impl Iterator<Item = &'static str> {
    CHECKS.iter().map(|(name, _)| *name).chain(readers::targets())
}
