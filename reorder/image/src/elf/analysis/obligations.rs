//! What must hold for the image as a whole before anything in it may move.

use std::ops::Range;

use object::elf::{DF_TEXTREL, DT_FLAGS, DT_TEXTREL};

use crate::decode::{aarch64_gap, padding};
use crate::elf::analysis::Coverage;
use crate::elf::analysis::blocks::{GapContent, Partition};
use crate::elf::analysis::dumps::find_string;
use crate::elf::code::CodeSpace;
use crate::elf::dynamic::DynamicEntry;
use crate::elf::file::ElfFile;
use crate::elf::loader_formats::check_loader_formats;
use crate::functions::bytes_of;
use reorder_base::address::Address;
use reorder_base::hint::Hint;
use reorder_base::processor::Processor;
use reorder_base::refusal::{Refusal, RefusalCode};

/// Sections that hold code addresses in a form of their own, with what writes them.
const UNKNOWN_FORMATS: [(&str, &str); 13] = [
    (".llvm_bb_addr_map", "clang -fbasic-block-address-map"),
    (".pseudo_probe", "clang -fpseudo-probe-for-profiling"),
    (".llvm_stackmaps", "LLVM stack maps"),
    (".llvm_faultmaps", "LLVM fault maps"),
    (".llvm_jump_table_info", "clang -emit-jump-table-info"),
    (".stack_sizes", "clang -fstack-size-section"),
    (".kcfi_traps", "clang -fsanitize=kcfi"),
    ("xray_instr_map", "clang -fxray-instrument"),
    (".orc_unwind", "a kernel build"),
    ("__ex_table", "a kernel build"),
    ("__jump_table", "a kernel build"),
    (".altinstructions", "a kernel build"),
    (".modinfo", "a kernel build"),
];

/// Holds the copies of functions in an image that has some.
pub const COPIES: &str = ".text.reorder";

/// Refuses what is known before any code is decoded: R3, R5, R7, R9, R13.
///
/// # Errors
/// The refusal.
pub(crate) fn check_image(file: &ElfFile<'_>, dynamic: &[DynamicEntry]) -> Result<(), Refusal> {
    let has_text_relocations = dynamic
        .iter()
        .any(|entry| entry.tag == DT_TEXTREL.0 || entry.tag == DT_FLAGS.0 && entry.value & DF_TEXTREL.0 != 0);
    if has_text_relocations {
        return Err(Refusal::new(
            RefusalCode::ChangingCode,
            "the image has text relocations (DT_TEXTREL): the loader patches its code",
            "rebuild all objects as position-independent code (-fPIC, -fPIE)",
        ));
    }
    for segment in file.segments.iter().filter(|segment| segment.is_load()) {
        let holds_entry = file.entry.distance_from(segment.address) < segment.memory_size;
        if segment.is_executable() && segment.is_writable() {
            return Err(Refusal::new(
                RefusalCode::ChangingCode,
                "a segment is both writable and executable, so code may change at run time",
                "link with separate segments; unpack the program first if it is packed",
            )
            .at(segment.address));
        }
        if holds_entry && file.entry != Address(0) && segment.is_writable() {
            return Err(Refusal::new(
                RefusalCode::PrivateRuntimeTables,
                "the program starts in a writable segment, as packed programs do",
                "unpack it first (for UPX: upx -d)",
            )
            .at(file.entry));
        }
    }
    if file.section(COPIES.as_bytes()).is_some() {
        let reason = "the image has copies of functions, which moving would take apart";
        return Err(Refusal::new(RefusalCode::Copies, reason, Hint::ImageWithoutCopies));
    }
    check_loader_formats(file, dynamic)?;
    check_uncovered_bytes(file)?;
    check_runtimes(file)?;
    for (name, origin) in UNKNOWN_FORMATS {
        if let Some(section) = file.section(name.as_bytes()) {
            return Err(Refusal::new(
                RefusalCode::UnknownCodeAddresses,
                format!("section {name} (from {origin}) stores code addresses that are not rewritten yet"),
                format!("rebuild without it, or remove it if nothing reads it: objcopy --remove-section={name} IN OUT"),
            )
            .at(section.address));
        }
    }
    Ok(())
}

/// Code in no section would refer to functions unseen.
fn check_uncovered_bytes(file: &ElfFile<'_>) -> Result<(), Refusal> {
    let mut covered: Vec<(u64, u64)> = file
        .sections
        .iter()
        .filter(|section| section.is_loaded() && section.has_bytes())
        .map(|section| (section.offset.0, section.offset.0 + section.size))
        .collect();
    covered.push((0, file.header_bytes()));
    // The table of program headers may lie in a gap of code: tools that add headers put it there.
    covered.push((file.program_headers.start.0, file.program_headers.end.0));
    covered.sort_unstable();
    for segment in file.segments.iter().filter(|segment| segment.is_load() && segment.is_executable()) {
        let end = segment.offset.0 + segment.file_size;
        let mut position = segment.offset.0;
        for &(start, stop) in covered.iter().chain([&(end, end)]) {
            let hole = position.min(end) as usize..start.clamp(position.min(end), end) as usize;
            let bytes = &file.bytes[hole];
            let filler = match file.processor {
                Processor::Aarch64 => {
                    aarch64_gap::filler_length(bytes, segment.address.plus(position - segment.offset.0))
                }
                Processor::X86_64 | Processor::Other => padding::filler_length(bytes),
            };
            if filler < bytes.len() {
                let address = segment.address.plus(position + filler as u64 - segment.offset.0);
                let reason = "executable bytes belong to no section, so what they refer to is unknown";
                let cure =
                    "use the file as the linker wrote it, before sections were removed or bytes were added";
                return Err(Refusal::new(RefusalCode::UnknownCode, reason, cure).at(address));
            }
            position = position.max(stop);
        }
    }
    Ok(())
}

fn check_runtimes(file: &ElfFile<'_>) -> Result<(), Refusal> {
    let refuse = |runtime: &str, address: Address| {
        Refusal::new(
            RefusalCode::PrivateRuntimeTables,
            format!("the image is of {runtime}, whose runtime keeps code addresses in tables of its own"),
            "use the order options of its own compiler, if it has any",
        )
        .at(address)
    };
    for section in &file.sections {
        let runtime = match section.name {
            b".gopclntab" | b".data.rel.ro.gopclntab" | b".note.go.buildid" => "Go",
            b".dotnet_eh_table" | b"__managedcode" | b"__modules" => ".NET",
            b".svm_heap" => "GraalVM native image",
            name if name.starts_with(b"swift5_") || name.starts_with(b".swift5_") => "Swift",
            _ => continue,
        };
        return Err(refuse(runtime, section.address));
    }
    // Names of environment variables that only these runtimes read; they survive stripping.
    for (variable, runtime) in [("OCAMLRUNPARAM", "OCaml"), ("GHCRTS", "Haskell (GHC)")] {
        if let Some(address) = find_string(file, variable) {
            return Err(refuse(runtime, address));
        }
    }
    Ok(())
}

/// Uncovered code that every program carries: the C runtime's own startup code and a few stubs.
const TOLERATED_BYTES: u64 = 4096;

/// What gaps that look like code hold: opaque bytes, all of whose possible references stay, if more than a tenth of the code
/// belongs to no function or a hundredth cannot be decoded; otherwise code.
///
/// Refuses images of which less than half is known, unless any part will do: R5, R6.
///
/// # Errors
/// The refusal.
pub fn check_coverage(
    code: &CodeSpace<'_>,
    partition: &Partition,
    opaque_blocks: u64,
    coverage: Coverage,
    found: &[Range<Address>],
) -> Result<GapContent, Refusal> {
    let total: u64 = code.arenas.iter().map(|arena| arena.end.distance_from(arena.start)).sum();
    let gap_bytes = |content: GapContent| -> u64 {
        let gaps = partition.gaps.iter().filter(|gap| gap.content == content);
        gaps.map(|gap| gap.end.distance_from(gap.start)).sum()
    };
    let opaque = gap_bytes(GapContent::Opaque) + opaque_blocks;
    // Functions that control was followed to may be entered in other ways as well.
    let undescribed = bytes_of(found);
    let uncovered = gap_bytes(GapContent::Code) + gap_bytes(GapContent::Opaque) + undescribed;
    let largest = partition
        .gaps
        .iter()
        .filter(|gap| gap.content != GapContent::Padding)
        .max_by_key(|gap| (gap.end.distance_from(gap.start), gap.start));
    let place = largest.map_or(Address(0), |gap| gap.start);
    let percent = |part: u64| part as f64 * 100.0 / total.max(1) as f64;
    let is_demanded = coverage == Coverage::Half;
    let is_unknown = uncovered > TOLERATED_BYTES && uncovered > total / 2;
    if is_demanded && (is_unknown || !found.is_empty()) {
        let found = match found.len() {
            0 => String::new(),
            count => format!(
                "; following control finds {count} functions ({:.1} %), which can be copied, but not moved",
                percent(undescribed)
            ),
        };
        return Err(Refusal::new(
            RefusalCode::UnknownCode,
            format!("{:.1} % of the code belongs to no known function{found}", percent(uncovered)),
            "keep unwind tables (do not build with -fno-asynchronous-unwind-tables) or give an unstripped image",
        )
        .at(place));
    }
    if is_demanded && opaque > TOLERATED_BYTES && opaque > total / 2 {
        return Err(Refusal::new(
            RefusalCode::UndecodableCode,
            format!("{:.1} % of the code cannot be decoded", percent(opaque)),
            "data between functions must move to .rodata; nothing can be done for a finished image",
        )
        .at(place));
    }
    let is_opaque = uncovered > TOLERATED_BYTES.max(total / 10) || opaque > TOLERATED_BYTES.max(total / 100);
    Ok(if is_opaque { GapContent::Opaque } else { GapContent::Code })
}
