//! Reasons against moving any function of an image that headers and tables alone show.
//!
//! Each check refuses the whole image and says what was found and what to do. Reasons in the code or in single tables are
//! refused where those are read.

use super::file::{ImageKind, MachOFile};
use super::function_starts::function_starts;
use super::load_command::{LC_REQ_DYLD, LinkEditPart, LoadCommand};
use super::section::kind::DTRACE_OBJECT;
use super::symbol_table::symbols;
use crate::reader::Reader;
use reorder_base::error::{Error, Result};
use reorder_base::refusal::{Refusal, RefusalCode};

const MH_PIE: u32 = 0x20_0000;
/// Alignment of `__text` from which its code is assumed to be in blocks of whole pages; other code has 256 bytes at most.
const PAGE_ALIGNMENT: u32 = 12;

/// Refuses images that must not be moved.
///
/// # Errors
/// M2, M3, M5 to M8, M10, M16 and M17; malformed tables.
pub fn refuse_unmovable(file: &MachOFile<'_>) -> Result<()> {
    position_independence(file)?;
    for command in &file.commands {
        load_command(file, command)?;
    }
    sections(file)?;
    named_code(file)?;
    link_edit(file)
}

fn refuse<T>(code: RefusalCode, reason: impl Into<String>, cure: &str) -> Result<T> {
    Err(Refusal::new(code, reason, cure).into())
}

fn position_independence(file: &MachOFile<'_>) -> Result<()> {
    if file.kind == ImageKind::Program && file.flags & MH_PIE == 0 {
        return refuse(
            RefusalCode::MachOKind,
            "the program is linked at a fixed address",
            "link it without -no_pie",
        );
    }
    Ok(())
}

/// Commands without `LC_REQ_DYLD` that name an address or protect contents: number, description and cure.
const UNMOVABLE: [(u32, &str, &str); 10] = [
    (0x03, "symbols of a debugger (LC_SYMSEG)", "link it again with ld or lld"),
    (0x04, "a thread's registers (LC_THREAD)", "give a program, not a memory dump"),
    (0x05, "initial registers (LC_UNIXTHREAD)", "link it dynamically, so that it starts through LC_MAIN"),
    (
        0x11,
        "an initializer's address (LC_ROUTINES)",
        "link it without -init; use __attribute__((constructor))",
    ),
    (
        0x1a,
        "an initializer's address (LC_ROUTINES_64)",
        "link it without -init; use __attribute__((constructor))",
    ),
    (0x21, "an encrypted range (LC_ENCRYPTION_INFO)", "give the program as it was before it was encrypted"),
    (
        0x2c,
        "an encrypted range (LC_ENCRYPTION_INFO_64)",
        "give the program as it was before it was encrypted",
    ),
    (0x31, "data of an unknown owner (LC_NOTE)", "remove the note, then order the image"),
    (0x36, "atoms of a mergeable library (LC_ATOM_INFO)", "remove them with strip -no_atom_info"),
    (0x37, "variants of functions (LC_FUNCTION_VARIANTS)", "build it without function variants"),
];
/// The same for commands that name a range of `__LINKEDIT`, unless it is empty.
const UNMOVABLE_TABLES: [(u32, &str, &str); 4] = [
    (0x16, "hints for the binder (LC_TWOLEVEL_HINTS)", "link it for macOS 11 or later"),
    (0x2b, "requirements of libraries (LC_DYLIB_CODE_SIGN_DRS)", "link it for macOS 11 or later"),
    (0x2e, "hints of an object file (LC_LINKER_OPTIMIZATION_HINT)", "link it without -r"),
    (
        0x38,
        "fixups of functions' variants (LC_FUNCTION_VARIANT_FIXUPS)",
        "build it without function variants",
    ),
];
/// Commands with `LC_REQ_DYLD` that are understood: libraries and search paths, the entry, fixups and exports.
const UNDERSTOOD: [u32; 8] = [0x18, 0x1c, 0x1f, 0x22, 0x23, 0x28, 0x33, 0x34];

fn load_command(file: &MachOFile<'_>, command: &LoadCommand) -> Result<()> {
    let mut reader = Reader::new(file.command_bytes(command), command.offset as u64, "load command");
    if let Some((number, what, cure)) = UNMOVABLE.iter().find(|(kind, ..)| *kind == command.kind) {
        // A zero means that the image can be encrypted but is not.
        let is_encrypted_one = matches!(number, 0x21 | 0x2c);
        if is_encrypted_one && reader.take(16).is_ok() && reader.word()? == 0 {
            return Ok(());
        }
        return refuse(RefusalCode::MachOLoadCommand, format!("the image has {what}"), cure);
    }
    if let Some((_, what, cure)) = UNMOVABLE_TABLES.iter().find(|(kind, ..)| *kind == command.kind) {
        reader.take(12)?;
        return match reader.word()? {
            0 => Ok(()),
            _ => refuse(RefusalCode::MachOLoadCommand, format!("the image has {what}"), cure),
        };
    }
    if command.kind & LC_REQ_DYLD != 0 && !UNDERSTOOD.contains(&(command.kind ^ LC_REQ_DYLD)) {
        return refuse(
            RefusalCode::MachOLoadCommand,
            format!(
                "the image has the load command {:#x}, which the loader requires and reorder does not know",
                command.kind
            ),
            "link it with an older linker or for an older system",
        );
    }
    if command.kind == object::macho::LC_DYSYMTAB.0 {
        return old_tables(&mut reader);
    }
    Ok(())
}

/// The counts in `LC_DYSYMTAB` of tables that linked images no longer have, since the loader has its own.
fn old_tables(reader: &mut Reader<'_>) -> Result<()> {
    const COUNTS: [(usize, &str); 5] = [
        (36, "table of contents"),
        (44, "table of modules"),
        (52, "table of referenced symbols"),
        (68, "table of external relocations"),
        (76, "table of local relocations"),
    ];
    for (at, what) in COUNTS {
        reader.seek(at)?;
        if reader.word()? != 0 {
            return refuse(
                RefusalCode::MachOLinkerTables,
                format!("the image has a {what}"),
                "link it for macOS 11 or later, without -r and without prebinding",
            );
        }
    }
    Ok(())
}

fn sections(file: &MachOFile<'_>) -> Result<()> {
    for section in &file.sections {
        let at = |code, reason: String, cure: &str| {
            Err(Refusal::new(code, reason, cure).at(section.address).into())
        };
        let name = String::from_utf8_lossy(section.name);
        if section.name == b"__gopclntab" || section.name.starts_with(b"__go_") {
            let cure = "Go's linker cannot order functions; leave the image as it is";
            return at(
                RefusalCode::MachORuntimeTables,
                format!("the section {name} has Go's table of functions"),
                cure,
            );
        }
        if section.name.starts_with(b"__dof_") || section.kind() == DTRACE_OBJECT {
            let cure = "build it without probes of DTrace";
            return at(RefusalCode::MachOProbes, format!("the section {name} has probes of DTrace"), cure);
        }
    }
    if file.text().alignment >= PAGE_ALIGNMENT {
        return refuse(
            RefusalCode::MachOBlockDistances,
            format!("the section __text is aligned to {} bytes", 1u64 << file.text().alignment.min(63)),
            "such code is addressed by pages or blocks; build it without that part, or use an order file when it is linked",
        );
    }
    Ok(())
}

fn named_code(file: &MachOFile<'_>) -> Result<()> {
    let text = file.text();
    let constants = file.section(b"__TEXT", b"__const").map(|section| section.number);
    let mut has_functions = false;
    for symbol in symbols(file)? {
        let Some(address) = symbol.address() else { continue };
        let (is_code, in_constants) =
            (text.range().contains(&address), constants == Some(u32::from(symbol.section)));
        has_functions |= is_code;
        let name = symbol.name.strip_prefix(b"_").unwrap_or(symbol.name);
        if name.starts_with(b"v8_Default_embedded_blob_") || is_code && name.starts_with(b"Builtins_") {
            return Err(Refusal::new(
                RefusalCode::MachOBlockDistances,
                "the image has V8's built-in functions, which are addressed by their distance from the first",
                "use an order file when it is linked",
            )
            .at(address)
            .into());
        }
        if in_constants && name.starts_with(b"_ZTV") {
            return Err(Refusal::new(
                RefusalCode::MachOBlockDistances,
                "the image has virtual tables with distances from their own start",
                "build it without -fexperimental-relative-c++-abi-vtables",
            )
            .at(address)
            .into());
        }
    }
    if !has_functions && !function_starts(file)?.iter().any(|start| text.range().contains(start)) {
        return refuse(
            RefusalCode::MachOUnknownFunctions,
            "the image has neither function starts nor symbols of functions",
            "link it without -no_function_starts, or do not strip it",
        );
    }
    Ok(())
}

/// Refuses unknown contents of `__LINKEDIT` and any bytes after it.
fn link_edit(file: &MachOFile<'_>) -> Result<()> {
    if file.link_edit_range(LinkEditPart::SplitInfo).is_some() {
        return refuse(
            RefusalCode::MachOSharedCache,
            "the image has information for the shared cache (LC_SEGMENT_SPLIT_INFO)",
            "link it without -add_split_seg_info and not as a library of the system",
        );
    }
    let Some(segment) = file.segment(b"__LINKEDIT") else {
        return refuse(
            RefusalCode::MachOTrailingBytes,
            "the image has no segment __LINKEDIT",
            "link it with ld or lld",
        );
    };
    let cure =
        "remove what was appended or changed after linking, such as with strip or codesign, and try again";
    let mut end = segment.offset;
    let last = segment.offset + segment.file_size;
    for range in &file.link_edit {
        if range.offset < end || range.offset + range.size > last {
            return Err(Error::malformed(
                range.offset_field as u64,
                format!("{:?} overlaps another part or lies outside __LINKEDIT", range.part),
            ));
        }
        unused(file, end, range.offset, cure)?;
        end = range.offset + range.size;
    }
    unused(file, end, last, cure)?;
    if last != file.bytes.len() {
        let size = file.bytes.len().abs_diff(last);
        return refuse(
            RefusalCode::MachOTrailingBytes,
            format!("the file has {size} bytes after __LINKEDIT"),
            cure,
        );
    }
    match file.link_edit_range(LinkEditPart::Signature) {
        Some(signature) if signature.offset + signature.size != end => {
            refuse(RefusalCode::MachOTrailingBytes, "the signature is not the last part of __LINKEDIT", cure)
        }
        _ => Ok(()),
    }
}

/// Refuses anything but padding from `start` to `end`.
fn unused(file: &MachOFile<'_>, start: usize, end: usize, cure: &str) -> Result<()> {
    match file.bytes.get(start..end).is_some_and(|between| between.iter().all(|byte| *byte == 0)) {
        true => Ok(()),
        false => refuse(
            RefusalCode::MachOTrailingBytes,
            format!(
                "{} bytes of __LINKEDIT from {start:#x} on belong to no load command",
                end.saturating_sub(start)
            ),
            cure,
        ),
    }
}
