//! Tables of Mach-O images that ld64.lld links: read as LLVM's tools read them, rebuilt for other layouts, and refused
//! where something in them must not be moved.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use end_to_end::process::shell;
use reorder_base::address::{Address, NewAddress};
use reorder_base::error::{Error, ErrorKind, Result};
use reorder_image::exception_table::TableBudget;
use reorder_image::macho::checks::refuse_unmovable;
use reorder_image::macho::export_trie::{self, ExportValue};
use reorder_image::macho::file::MachOFile;
use reorder_image::macho::fixups::rebases;
use reorder_image::macho::function_starts::function_starts;
use reorder_image::macho::landing_pads::landing_pads;
use reorder_image::macho::load_command::LinkEditPart;
use reorder_image::macho::method_lists::implementations;
use reorder_image::macho::reference::DataForm;
use reorder_image::macho::signature::Signature;
use reorder_image::macho::symbol_table::symbols;
use reorder_image::macho::unwind_info::UnwindInfo;
use reorder_image::macho::{entry, init_offsets};
use reorder_relocate::address_map::{AddressMap, Move};
use reorder_relocate::macho::finish::{Finished, finish};
use reorder_relocate::macho::unwind::unwind_size;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);

const SYSTEM: &str = "\
--- !tapi-tbd\n\
tbd-version: 4\n\
targets: [ x86_64-macos, arm64-macos ]\n\
install-name: /usr/lib/libSystem.B.dylib\n\
exports:\n  - targets: [ x86_64-macos, arm64-macos ]\n    \
symbols: [ dyld_stub_binder, ___cxa_throw, ___cxa_allocate_exception, ___cxa_begin_catch, ___cxa_end_catch, \
__Unwind_Resume, ___gxx_personality_v0, __ZTIi, __objc_empty_cache ]\n...\n";
const UNIT: &str = "\
using Function = int (*)(int);\n\
__attribute__((noinline)) int risky(int n) { if (n > 5) throw n; return n * 3; }\n\
__attribute__((noinline)) int careful(int n) { try { return risky(n) + 1; } catch (int value) { return value; } }\n\
__attribute__((noinline)) static int twice(int n) { return n * 2; }\n\
__attribute__((noinline)) static int square(int n) { return n * n; }\n\
extern const Function table[];\n\
const Function table[] = { twice, square, careful, risky };\n\
extern int started; int started = risky(*(volatile int *)&table + 2);\n\
int main(int n, char **) { return careful(n) + table[n & 3](n) + started; }\n";
const LIST: &str = "\
__attribute__((objc_root_class)) @interface Root @end\n\
@implementation Root\n\
- (int)first { return 1; }\n\
- (int)second:(int)n { return n + 2; }\n\
+ (int)third { return 3; }\n\
@end\n";

const VARIANTS: [(&str, u32, &str); 12] = [
    ("arm64", 12, "execute"),
    ("arm64", 12, "dylib"),
    ("arm64", 12, "bundle"),
    ("arm64", 13, "execute"),
    ("arm64", 13, "dylib"),
    ("arm64", 13, "bundle"),
    ("x86_64", 12, "execute"),
    ("x86_64", 12, "dylib"),
    ("x86_64", 12, "bundle"),
    ("x86_64", 13, "execute"),
    ("x86_64", 13, "dylib"),
    ("x86_64", 13, "bundle"),
];

struct Linked {
    directory: TempDir,
    bytes: Vec<u8>,
}

impl Linked {
    fn new((architecture, version, kind): (&str, u32, &str), assembly: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = [("system.tbd", SYSTEM), ("unit.cc", UNIT), ("list.m", LIST), ("more.s", assembly)];
        for (name, contents) in files {
            std::fs::write(directory.path().join(name), contents).unwrap();
        }
        let linked = Self { directory, bytes: Vec::new() };
        linked.run(&format!(
            "for unit in unit.cc list.m more.s; do \
             clang$LLVM --target={architecture}-apple-macos{version} -g -O1 -c $unit -o $unit.o || exit 1; done && \
             ld64.lld$LLVM -arch {architecture} -platform_version macos {version} {version} -{kind} -o image \
             unit.cc.o list.m.o more.s.o system.tbd"
        ));
        let bytes = std::fs::read(linked.directory.path().join("image")).unwrap();
        Self { bytes, ..linked }
    }

    fn run(&self, line: &str) -> String {
        shell(&format!("cd '{}' && {{ {line}; }}", self.directory.path().display()), LIMIT).unwrap()
    }

    /// What llvm-objdump says about `bytes`: the hexadecimal numbers at `column` of each line with `word` that has one
    /// there.
    fn numbers(&self, bytes: &[u8], flag: &str, word: &str, column: usize) -> Vec<u64> {
        std::fs::write(self.directory.path().join("shown"), bytes).unwrap();
        let text = self.run(&format!("llvm-objdump$LLVM --macho {flag} shown"));
        let number = |line: &str| {
            let word = line.split_whitespace().nth(column)?;
            u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
        };
        text.lines().filter(|line| !line.ends_with(':') && line.contains(word)).filter_map(number).collect()
    }
}

fn number(addresses: impl IntoIterator<Item = Address>) -> Vec<u64> {
    addresses.into_iter().map(|address| address.0).collect()
}

/// Name and address of the exports that are places.
fn exports(file: &MachOFile<'_>) -> BTreeMap<Vec<u8>, u64> {
    let all = export_trie::parse(file.link_edit_bytes(LinkEditPart::Exports)).unwrap();
    let place = |value: &ExportValue| match value {
        ExportValue::Offset(offset) => Some(file.address_of(*offset).0),
        _ => None,
    };
    all.iter().filter_map(|export| Some((export.name.clone(), place(&export.value)?))).collect()
}

/// The functions of `__text` in the order that `arrange` makes of theirs.
fn arranged(file: &MachOFile<'_>, arrange: impl Fn(&mut Vec<(Address, u64)>)) -> Result<AddressMap> {
    let text = file.text().range();
    let mut starts = function_starts(file)?;
    starts.retain(|start| text.contains(start));
    starts.push(text.end);
    let mut new = starts[0].0;
    let mut functions: Vec<(Address, u64)> =
        starts.windows(2).map(|pair| (pair[0], pair[1].distance_from(pair[0]))).collect();
    arrange(&mut functions);
    AddressMap::new(functions.into_iter().map(|(old, size)| {
        new += size;
        Move { old, new: NewAddress(new - size), size }
    }))
}

fn reversed(file: &MachOFile<'_>) -> Result<AddressMap> {
    arranged(file, |functions| functions.reverse())
}

#[test]
fn tables_are_read_as_llvm_reads_them() {
    for variant in VARIANTS {
        let linked = Linked::new(variant, "");
        let file = MachOFile::parse(&linked.bytes).unwrap();
        refuse_unmovable(&file).unwrap();
        let starts = number(function_starts(&file).unwrap());
        assert_eq!(starts, linked.numbers(&linked.bytes, "--function-starts=addrs", "", 0), "{variant:?}");
        let slots = rebases(&file).unwrap();
        let places = number(slots.iter().map(|slot| slot.place));
        let shown = match variant.1 {
            12 => linked.numbers(&linked.bytes, "--rebase", " pointer", 2),
            _ => linked.numbers(&linked.bytes, "--dyld-info", " rebase ", 2),
        };
        assert_eq!(places, shown, "{variant:?}");
        assert!(slots.iter().any(|slot| slot.target == file.text().range().start), "{variant:?}");
        let shown: BTreeSet<u64> =
            linked.numbers(&linked.bytes, "--exports-trie", "", 0).into_iter().collect();
        assert_eq!(exports(&file).into_values().collect::<BTreeSet<u64>>(), shown, "{variant:?}");
        let methods = implementations(&file, &slots).unwrap();
        assert_eq!(methods.len(), 3, "{variant:?}");
        assert!(methods.iter().all(|method| starts.contains(&method.target.0)), "{variant:?}");
        let initializers = init_offsets::initializer_offsets(&file).unwrap();
        assert_eq!(initializers.len(), usize::from(variant.1 == 13), "{variant:?}");
        assert!(initializers.iter().all(|one| starts.contains(&one.target.0)), "{variant:?}");
        let entry = entry::entry(&file).unwrap();
        assert_eq!(entry.is_some(), variant.2 == "execute");
        assert!(entry.is_none_or(|entry| starts.contains(&entry.address.0)), "{variant:?}");
        let unwind = UnwindInfo::parse(&file).unwrap().unwrap();
        let [(function, table)] = unwind.exception_tables[..] else { panic!("one function catches") };
        let pads = landing_pads(&file, table, function, &mut TableBudget::new(file.bytes.len())).unwrap();
        assert!(pads.len() == 1 && pads[0] > function, "{variant:?}");
    }
}

#[test]
fn rebase_opcodes_skip_and_repeat() {
    let linked = Linked::new(("arm64", 12, "execute"), "");
    let file = MachOFile::parse(&linked.bytes).unwrap();
    let opcodes = file.link_edit_range(LinkEditPart::Rebase).unwrap();
    let places = |program: &[u8]| {
        let mut bytes = linked.bytes.clone();
        bytes[opcodes.offset..opcodes.offset + opcodes.size].fill(0);
        bytes[opcodes.offset..opcodes.offset + program.len()].copy_from_slice(program);
        let slots = rebases(&MachOFile::parse(&bytes).unwrap()).ok()?;
        Some(slots.iter().map(|slot| slot.place.distance_from(file.segments[2].address)).collect::<Vec<_>>())
    };
    // Twice, on by a slot, twice, once and on by a slot, twice with a slot between.
    let all = [0x11, 0x22, 0x10, 0x52, 0x41, 0x60, 2, 0x70, 8, 0x80, 2, 8];
    assert_eq!(places(&all), Some([0, 8, 24, 32, 40, 56, 72].map(|offset| offset + 16).to_vec()));
    assert_eq!(places(&[0x11, 0x22, 0x10, 0x51, 0x30, 16, 0x51]), Some(vec![16, 40]));
    assert_eq!(places(&[]), Some(vec![]));
    assert_eq!(places(&[0x11, 0x22, 0x10, 0x60, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]), None, "endless");
    let again = [0x11, 0x22, 0, 0x51, 0x30, 0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0x51];
    assert_eq!(places(&again), None, "the same slot twice");
    assert_eq!(places(&[0x11, 0x51]), None, "no segment");
    assert_eq!(places(&[0x22, 0, 0x51]), None, "no type");
    assert_eq!(places(&[0x11, 0x2f, 0, 0x51]), None, "a segment that is not there");
}

#[test]
fn chains_have_any_links_and_spare_bits() {
    let linked = Linked::new(("arm64", 13, "execute"), "");
    let file = MachOFile::parse(&linked.bytes).unwrap();
    let slots = rebases(&file).unwrap();
    let (first, segment) = (slots[0], file.segment(b"__DATA_CONST").unwrap());
    let in_segment = slots.iter().filter(|slot| segment.range().contains(&slot.place)).count();
    let at = file.offset_of(first.place, 8).unwrap();
    let changed = |next: u64, high: u64| {
        let mut bytes = linked.bytes.clone();
        let value = file.long_at(first.place).unwrap() & !(0xfff << 51) | next << 51 | high << 36;
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        rebases(&MachOFile::parse(&bytes).unwrap()).ok()
    };
    assert_eq!(changed(2, 0).as_ref(), Some(&slots));
    assert_eq!(changed(2, 0xff).as_ref(), Some(&slots), "the top byte is no part of the target");
    let alone = changed(0, 0).unwrap();
    assert_eq!((alone[0], alone.len()), (first, slots.len() - in_segment + 1), "the chain ends at once");
    assert_eq!(changed(1, 0), None, "slots that overlap");
    // The longest link of the page, into zeros: one more slot, and the chain's end.
    let distance = 0x4000 - 8 - first.place.distance_from(segment.address);
    assert_eq!(changed(distance / 4, 0).map(|slots| slots[1].place), Some(first.place.plus(distance)));
    assert_eq!(changed(0xfff, 0), None, "a chain that leaves its page");
    let offsets = {
        let header = file.link_edit_range(LinkEditPart::ChainedFixups).unwrap().offset;
        let word = |at: usize| u32::from_le_bytes(linked.bytes[at..at + 4].try_into().unwrap()) as usize;
        let starts = header + word(header + 4);
        let mut bytes = linked.bytes.clone();
        for at in (0..word(starts)).map(|index| word(starts + 4 + 4 * index)).filter(|at| *at > 0) {
            bytes[starts + at + 6] = 6;
        }
        rebases(&MachOFile::parse(&bytes).unwrap()).unwrap()
    };
    assert!(offsets.iter().zip(&slots).all(|(offset, address)| {
        offset.place == address.place
            && offset.form == DataForm::ChainedOffset
            && offset.target == file.address_of(address.target.0)
    }));
}

#[test]
fn the_link_order_changes_only_unwind_and_signature() {
    for variant in VARIANTS {
        let linked = Linked::new(variant, "");
        let file = MachOFile::parse(&linked.bytes).unwrap();
        let Finished { bytes, warnings } =
            finish(&file, &AddressMap::default(), linked.bytes.clone()).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let unwind = file.section(b"__TEXT", b"__unwind_info").unwrap();
        let signature = file.link_edit_range(LinkEditPart::Signature);
        let is_signature =
            |at: usize| signature.is_some_and(|range| at >= range.offset || at / 4 == range.size_field / 4);
        // The signature's size decides that of its segment.
        let link_edit_size = file.segment(b"__LINKEDIT").unwrap().command_offset + 48;
        let is_allowed = |at: usize| {
            (unwind.offset..unwind.offset + unwind.size as usize).contains(&at)
                || is_signature(at)
                || signature.is_some() && (link_edit_size..link_edit_size + 8).contains(&at)
        };
        let different = (0..bytes.len().min(linked.bytes.len())).filter(|&at| bytes[at] != linked.bytes[at]);
        assert_eq!(different.filter(|at| !is_allowed(*at)).collect::<Vec<_>>(), [0; 0], "{variant:?}");
        let file = MachOFile::parse(&bytes).unwrap();
        refuse_unmovable(&file).unwrap();
        let again = finish(&file, &AddressMap::default(), bytes.clone()).unwrap();
        assert!(again.bytes == bytes, "{variant:?}: the second time something changed");
    }
}

#[test]
fn tables_follow_the_functions() {
    for variant in VARIANTS {
        let linked = Linked::new(variant, "");
        let old = MachOFile::parse(&linked.bytes).unwrap();
        let map = reversed(&old).unwrap();
        let bytes = finish(&old, &map, linked.bytes.clone()).unwrap().bytes;
        let new = MachOFile::parse(&bytes).unwrap();
        refuse_unmovable(&new).unwrap();
        let moved = |address: u64| map.map(Address(address)).0;
        let mut starts: Vec<u64> =
            function_starts(&old).unwrap().iter().map(|start| moved(start.0)).collect();
        starts.sort_unstable();
        assert_eq!(linked.numbers(&bytes, "--function-starts=addrs", "", 0), starts, "{variant:?}");
        let expected: BTreeMap<_, _> =
            exports(&old).into_iter().map(|(name, place)| (name, moved(place))).collect();
        assert_eq!(exports(&new), expected, "{variant:?}");
        for (before, after) in symbols(&old).unwrap().zip(symbols(&new).unwrap()) {
            assert_eq!((before.name, before.kind, before.section), (after.name, after.kind, after.section));
            let place = before.address().map(|address| map.map(address).0);
            assert_eq!(after.address().map(|address| address.0), place);
            // Functions of the debug map; the nameless ones tell sizes.
            let follows = before.kind == 0x24 && !before.name.is_empty();
            let value = if follows { moved(before.value) } else { before.value };
            assert!(place.is_some() || after.value == value, "{variant:?}: {before:?} {after:?}");
        }
        let (before, after) =
            (UnwindInfo::parse(&old).unwrap().unwrap(), UnwindInfo::parse(&new).unwrap().unwrap());
        for start in function_starts(&old).unwrap() {
            let place = Address(moved(start.0));
            assert_eq!(before.encoding_at(start), after.encoding_at(place), "{variant:?}");
            assert_eq!(before.exception_table_at(start), after.exception_table_at(place), "{variant:?}");
        }
        let shown = linked.run("llvm-objdump$LLVM --macho --unwind-info shown");
        for entry in &after.entries {
            let line = format!("function offset=0x{:08x}", entry.start.distance_from(new.base()));
            let encoding = format!("=0x{:08x}", entry.encoding);
            assert!(
                shown.lines().any(|shown| shown.contains(&line) && shown.ends_with(&encoding)),
                "{line} {encoding}: {shown}"
            );
        }
        let entry = |file: &MachOFile<'_>| entry::entry(file).unwrap().map(|entry| entry.address.0);
        assert_eq!(entry(&new), entry(&old).map(moved));
        assert_ne!(new.uuid, old.uuid);
        assert_eq!(Signature::read(&new).unwrap().is_some(), variant.0 == "arm64");
    }
}

/// All steps from the headers to every table.
fn read_everything(bytes: &[u8]) -> Result<()> {
    let file = MachOFile::parse(bytes)?;
    refuse_unmovable(&file)?;
    let slots = rebases(&file)?;
    implementations(&file, &slots)?;
    if let Some(unwind) = UnwindInfo::parse(&file)? {
        let mut budget = TableBudget::new(file.bytes.len());
        for (function, table) in &unwind.exception_tables {
            landing_pads(&file, *table, *function, &mut budget)?;
        }
    }
    finish(&file, &reversed(&file)?, bytes.to_vec()).map(|_| ())
}

fn code(error: &Error) -> String {
    match &error.kind {
        ErrorKind::Refused(refusal) => {
            assert!(!reorder::hints::text(&refusal.cure).is_empty() && error.hint.is_some());
            refusal.code.to_string()
        }
        _ => format!("{error}"),
    }
}

fn refusal(bytes: &[u8]) -> String {
    read_everything(bytes).map_or_else(|error| code(&error), |()| "accepted".to_owned())
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn load_commands_that_forbid_moves_are_refused() {
    let linked = Linked::new(("arm64", 12, "execute"), "");
    assert_eq!(refusal(&linked.bytes), "accepted");
    let file = MachOFile::parse(&linked.bytes).unwrap();
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = linked.bytes.clone();
        change(&mut bytes);
        refusal(&bytes)
    };
    let command = |kind: u32| file.command(kind).unwrap().offset;
    let build_version = command(0x32);
    for kind in
        [3, 4, 5, 0x11, 0x1a, 0x21, 0x2c, 0x31, 0x36, 0x37, 0x38, 0x2b, 0x2e, 0x8000_0035, 0x8000_0099]
    {
        assert_eq!(changed(&|bytes| put(bytes, build_version, kind)), "M3", "{kind:#x}");
    }
    assert_eq!(changed(&|bytes| put(bytes, 4, 7)), "M1", "i386");
    assert_eq!(changed(&|bytes| put(bytes, 8, 2)), "M1", "arm64e");
    assert_eq!(changed(&|bytes| put(bytes, 12, 1)), "M2", "an object file");
    assert_eq!(changed(&|bytes| put(bytes, 24, file.flags & !0x20_0000)), "M2", "a fixed address");
    let (symbols, starts, dynamic) = (command(2), command(0x26), command(0xb));
    let without_functions = |bytes: &mut Vec<u8>| {
        put(bytes, symbols + 12, 0);
        put(bytes, starts + 12, 0);
    };
    assert_eq!(changed(&without_functions), "M5");
    for count in [36, 44, 52, 68, 76] {
        assert_eq!(changed(&|bytes| put(bytes, dynamic + count, 1)), "M10", "{count}");
    }
    assert_eq!(changed(&|bytes| put(bytes, starts, 0x1e)), "M16");
    assert_eq!(changed(&|bytes| bytes.push(0)), "M17", "data after the signature");
    let covered = file.link_edit_range(LinkEditPart::FunctionStarts).unwrap();
    assert_eq!(changed(&|bytes| put(bytes, covered.size_field, 8)), "M17", "bytes that nothing names");
}

#[test]
fn sections_and_tables_that_forbid_moves_are_refused() {
    let linked = Linked::new(("arm64", 12, "execute"), "");
    let chained = Linked::new(("arm64", 13, "execute"), "");
    let file = MachOFile::parse(&linked.bytes).unwrap();
    let section = |name: &[u8]| *file.section(b"__TEXT", name).unwrap();
    let changed = |linked: &Linked, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = linked.bytes.clone();
        change(&mut bytes);
        refusal(&bytes)
    };
    let rename = |from: &[u8], to: &[u8]| {
        let mut name = [0; 16];
        name[..to.len()].copy_from_slice(to);
        let at = section(from).header_offset;
        changed(&linked, &|bytes| bytes[at..at + 16].copy_from_slice(&name))
    };
    assert_eq!(rename(b"__text", b"__code"), "M4");
    assert_eq!(rename(b"__cstring", b"__text"), "M4");
    assert_eq!(rename(b"__cstring", b"__gopclntab"), "M6");
    assert_eq!(rename(b"__cstring", b"__dof_node"), "M7");
    let alignment = file.text().header_offset + 52;
    assert_eq!(changed(&linked, &|bytes| put(bytes, alignment, 14)), "M8");
    let opcodes = file.link_edit_range(LinkEditPart::Rebase).unwrap().offset;
    assert_eq!(changed(&linked, &|bytes| bytes[opcodes] = 0x12), "M9", "another type");
    assert_eq!(changed(&linked, &|bytes| bytes[opcodes] = 0x90), "M9", "an unknown opcode");
    for (field, value) in [(6, 1u16), (6, 12), (22, 0x8000)] {
        // The format, and the first page's chain, of the first segment that has fixups.
        let file = MachOFile::parse(&chained.bytes).unwrap();
        let header = file.link_edit_range(LinkEditPart::ChainedFixups).unwrap().offset;
        let word = |at: usize| u32::from_le_bytes(chained.bytes[at..at + 4].try_into().unwrap()) as usize;
        let starts = header + word(header + 4);
        let first = (0..word(starts)).map(|index| word(starts + 4 + 4 * index)).find(|at| *at > 0).unwrap();
        let at = starts + first + field;
        assert_eq!(changed(&chained, &|bytes| bytes[at..at + 2].copy_from_slice(&value.to_le_bytes())), "M9");
    }
    let (tables, lists, unwind) =
        (section(b"__gcc_except_tab"), section(b"__objc_methlist"), section(b"__unwind_info"));
    assert_eq!(changed(&linked, &|bytes| bytes[tables.offset] = 0), "M11");
    assert_eq!(changed(&linked, &|bytes| bytes[lists.offset] = 24), "M12", "another size of entries");
    assert_eq!(changed(&linked, &|bytes| put(bytes, lists.offset + 4, 0)), "M12", "bytes in no list");
    assert_eq!(changed(&linked, &|bytes| put(bytes, unwind.offset, 2)), "M13");
    // Every other function first: neighbours with one encoding, which share an entry, are separated.
    let every_other = |functions: &mut Vec<(Address, u64)>| {
        let (even, odd): (Vec<_>, Vec<_>) =
            functions.iter().enumerate().partition(|(index, _)| index % 2 == 0);
        *functions = even.into_iter().chain(odd).map(|(_, function)| *function).collect();
    };
    let map = arranged(&file, every_other).unwrap();
    let parsed = UnwindInfo::parse(&file).unwrap().unwrap();
    let least = unwind_size(&parsed, &AddressMap::default()).unwrap() as usize;
    assert!(unwind_size(&parsed, &map).unwrap() as usize > least);
    let mut bytes = finish(&file, &AddressMap::default(), linked.bytes.clone()).unwrap().bytes;
    put(&mut bytes, unwind.header_offset + 40, least as u32);
    bytes[unwind.offset + least..unwind.offset + unwind.size as usize].fill(0xff);
    let file = MachOFile::parse(&bytes).unwrap();
    assert_eq!(
        finish(&file, &map, bytes.clone()).map_or_else(|error| code(&error), |_| String::new()),
        "M14"
    );
}

#[test]
fn code_that_is_addressed_as_a_block_is_refused() {
    let builtin = ".globl _Builtins_Abort\n_Builtins_Abort:\n ret\n.subsections_via_symbols\n";
    let blob = ".globl _v8_Default_embedded_blob_code_\n_v8_Default_embedded_blob_code_:\n ret\n";
    let relative = ".section __TEXT,__const\n.globl __ZTV3One\n.p2align 2\n__ZTV3One:\n .long 1, 2\n";
    for assembly in [builtin, blob, relative] {
        let linked = Linked::new(("arm64", 13, "dylib"), assembly);
        assert_eq!(refusal(&linked.bytes), "M8", "{assembly}");
    }
}

#[test]
fn damaged_images_are_errors_and_never_panics() {
    let linked = Linked::new(("arm64", 13, "dylib"), "");
    let file = MachOFile::parse(&linked.bytes).unwrap();
    let link_edit = file.segment(b"__LINKEDIT").unwrap().offset;
    let signature = file.link_edit_range(LinkEditPart::Signature).unwrap().offset;
    let unwind = file.section(b"__TEXT", b"__unwind_info").unwrap().offset;
    let places = (0..1200).chain(unwind..unwind + 120).chain(link_edit..signature);
    for (round, at) in places.enumerate() {
        let mut bytes = linked.bytes.clone();
        bytes[at] ^= [0xff, 1, 0x80][round % 3];
        let _ = read_everything(&bytes);
    }
    for end in (0..linked.bytes.len()).step_by(997) {
        assert!(read_everything(&linked.bytes[..end]).is_err());
    }
}
