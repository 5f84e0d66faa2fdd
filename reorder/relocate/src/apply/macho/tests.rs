//! Whole images, relocated and proven: what published images have and small ones seldom do.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use super::*;
use reorder_image::macho::eh_frame::frame_entries;
use reorder_image::macho::linked::library;
use reorder_image::macho::load_command::LinkEditPart;
use reorder_image::macho::signature::Signature;
use reorder_image::macho::symbol_table::symbols;
use reorder_image::macho::unwind_info::UnwindInfo;

const ARCHITECTURES: [&str; 2] = ["arm64", "x86_64"];
/// Any number of percent may stay: these images are small.
const OPTIONS: MachOOptions = MachOOptions { most_pinned_percent: 100, allow_swift_pins: false };

/// The image with its functions in the opposite order, as far as they may move.
fn reversed(bytes: &[u8]) -> Result<Applied> {
    ordered(bytes, |order| order.reverse())
}

fn ordered(bytes: &[u8], arrange: impl Fn(&mut Vec<FunctionIndex>)) -> Result<Applied> {
    let file = MachOFile::parse(bytes)?;
    let names = file.code_names()?;
    let functions = names.functions_within(file.text().range());
    let analysis = MachOAnalysis::new(&file)?;
    let mut order: Vec<FunctionIndex> = functions.iter().map(|(index, _)| index).collect();
    arrange(&mut order);
    apply(&file, &functions, &analysis, Arrangement::Order(&order), OPTIONS)
}

fn assembled(architecture: &str, source: &str) -> Vec<u8> {
    let source = format!(".text\n{source}\n.subsections_via_symbols\n");
    library(architecture, "s", &source, &[], &["-ignore_optimization_hints"])
}

fn address(bytes: &[u8], name: &str) -> Address {
    let file = MachOFile::parse(bytes).unwrap();
    let mut all = symbols(&file).unwrap().filter(|symbol| symbol.name == name.as_bytes());
    all.find_map(|symbol| symbol.address()).unwrap()
}

/// Where the function `name` went.
fn is_moved(bytes: &[u8], applied: &Applied, name: &str) -> bool {
    let start = address(bytes, name);
    applied.map.map(start).0 != start.0
}

fn is_refused(bytes: &[u8], code: &str, words: &str) -> bool {
    let refused = reversed(bytes).map(|_| ()).map_err(|error| error.to_string());
    refused.as_ref().is_err_and(|error| error.contains(code) && error.contains(words))
}

fn blob(magic: u32, contents: &[u8]) -> Vec<u8> {
    let size = 8 + contents.len() as u32;
    [&magic.to_be_bytes(), &size.to_be_bytes(), contents].concat()
}

/// The image signed as `codesign --force -s -` signs it: with an empty set of requirements, and an empty message where a
/// certificate's signature would be.
fn signed_by_codesign(bytes: &[u8]) -> Vec<u8> {
    const REQUIREMENTS: u32 = 0xfade_0c01;
    const MESSAGE: u32 = 0xfade_0b01;
    let file = MachOFile::parse(bytes).unwrap();
    let place = *file.link_edit_range(LinkEditPart::Signature).unwrap();
    let old = Signature::read(&file).unwrap().unwrap();
    let parts = [
        (0, old.blob(0).unwrap().to_vec()),
        (2, blob(REQUIREMENTS, &[0; 4])),
        (0x1_0000, blob(MESSAGE, &[])),
    ];
    let mut table = (parts.len() as u32).to_be_bytes().to_vec();
    let mut offset = 12 + 8 * parts.len();
    for (slot, part) in &parts {
        table.extend([(*slot as u32).to_be_bytes(), (offset as u32).to_be_bytes()].concat());
        offset += part.len();
    }
    parts.iter().for_each(|(_, part)| table.extend(part));
    let mut signature = blob(0xfade_0cc0, &table);
    signature.resize(signature.len().next_multiple_of(16), 0);
    let segment = file.segment(b"__LINKEDIT").unwrap();
    let (segment_start, sizes) = (segment.offset, segment.command_offset);
    let mut signed = bytes[..place.offset].to_vec();
    signed.extend_from_slice(&signature);
    let file_size = (signed.len() - segment_start) as u64;
    signed[place.size_field..place.size_field + 4].copy_from_slice(&(signature.len() as u32).to_le_bytes());
    signed[sizes + 32..sizes + 40].copy_from_slice(&file_size.next_multiple_of(0x4000).to_le_bytes());
    signed[sizes + 48..sizes + 56].copy_from_slice(&file_size.to_le_bytes());
    signed
}

// case: Mach-O: an order that moves nothing, in an image that `codesign` signed
#[test]
fn an_image_of_which_nothing_moves_keeps_any_signature() {
    for architecture in ARCHITECTURES {
        let function = |name: &str| format!(".globl {name}\n.p2align 4\n{name}: nop\n ret\n");
        let names = ["_a", "_b", "_c"];
        let linked = assembled(architecture, &names.map(function).concat());
        if architecture == "x86_64" {
            // The linker signs for arm64 alone, unless it is asked.
            continue;
        }
        let signed = signed_by_codesign(&linked);
        let applied = ordered(&signed, |_| {}).unwrap();
        assert!(applied.bytes == signed, "{architecture}");
        let applied = reversed(&signed).unwrap();
        let file = MachOFile::parse(&applied.bytes).unwrap();
        let slots: Vec<u32> =
            Signature::read(&file).unwrap().unwrap().blobs.iter().map(|(slot, _)| *slot).collect();
        assert_eq!(slots, [0, 2], "what moves is signed anew");
    }
}

/// A function that only an entry of `__eh_frame` can describe, with an exception table.
const DESCRIBED: &str = ".globl _one, _f, _last\n_one: nop\n ret\n\
    _f: .cfi_startproc\n .cfi_personality 155, ___gxx_personality_v0\n .cfi_lsda 16, Ltable\n \
    .cfi_escape 0x0f, 0x03, 0x77, 0x08, 0x06\n nop\n ret\n .cfi_endproc\n_last: nop\n nop\n ret\n\
    .section __TEXT,__gcc_except_tab\nLtable: .byte 255, 255, 1, 4, 0, 4, 4, 0\n";

// case: Mach-O: unwind entries with a null exception table
#[test]
fn a_stored_zero_is_no_exception_table() {
    for architecture in ARCHITECTURES {
        let mut bytes = assembled(architecture, DESCRIBED);
        let (start, place) = {
            let file = MachOFile::parse(&bytes).unwrap();
            let entries = frame_entries(&file).unwrap();
            assert!(entries[0].exception_table.is_some());
            let section = file.section(b"__TEXT", b"__eh_frame").unwrap();
            // Length and parent, start and size, and the length of what follows.
            let distance = 8 + 2 * usize::from(entries[0].start_width) + 1;
            (entries[0].start, section.offset + entries[0].offset as usize + distance)
        };
        bytes[place..place + 8].fill(0);
        let file = MachOFile::parse(&bytes).unwrap();
        let entry = frame_entries(&file).unwrap()[0];
        assert_eq!((entry.start, entry.exception_table), (start, None), "{architecture}");
        let applied = reversed(&bytes).unwrap();
        assert!(is_moved(&bytes, &applied, "_f"), "{architecture}");
    }
}

// case: Mach-O: x86-64 code that no instruction leads to, stabs of functions outside of the text, the last unwind entry
#[test]
fn unwind_information_may_end_after_the_code() {
    let handled = ".globl _one, _f\n_one: nop\n ret\n_two: nop\n nop\n ret\n_f: .cfi_startproc\n \
        .cfi_personality 155, ___gxx_personality_v0\n .cfi_lsda 16, Ltable\n nop\n ret\n .cfi_endproc\n\
        .section __TEXT,__gcc_except_tab\nLtable: .byte 255, 255, 1, 4, 0, 4, 4, 0\n";
    for architecture in ARCHITECTURES {
        let mut bytes = assembled(architecture, handled);
        let place = {
            let file = MachOFile::parse(&bytes).unwrap();
            let section = UnwindInfo::section(&file).unwrap().offset;
            let word = |at: usize| u32::from_le_bytes(*bytes[section + at..].first_chunk().unwrap()) as usize;
            // The last of the index has the end.
            section + word(20) + 12 * (word(24) - 1)
        };
        bytes[place] += 1;
        let applied = reversed(&bytes).unwrap();
        assert!(is_moved(&bytes, &applied, "_one") && !is_moved(&bytes, &applied, "_f"), "{architecture}");
    }
}

// case: Mach-O: x86-64 code that no instruction leads to, stabs of functions outside of the text, the last unwind entry
#[test]
fn symbols_of_debuggers_name_functions_of_other_sections() {
    let source = "int one(int n) { return n + 1; }\nint two(int n) { return n * 3; }\nint three(int n) { return n - 7; }\n\
        __attribute__((section(\"__TEXT,__text_exit,regular,pure_instructions\"))) int last(int n) { return n * n; }\n";
    for architecture in ARCHITECTURES {
        let bytes = library(architecture, "c", source, &["-g", "-O1"], &[]);
        let file = MachOFile::parse(&bytes).unwrap();
        let (text, other) = (file.text().number, file.section(b"__TEXT", b"__text_exit").unwrap().number);
        assert_ne!(text, other);
        assert!(
            symbols(&file).unwrap().any(|symbol| symbol.is_debug() && u32::from(symbol.section) == other)
        );
        assert!(is_moved(&bytes, &reversed(&bytes).unwrap(), "_one"), "{architecture}");
    }
}

// case: Mach-O: x86-64 code that no instruction leads to, stabs of functions outside of the text, the last unwind entry
/// Pieces of x86-64 code between two functions; writer and verifier must decide the same for each.
#[test]
fn x86_64_code_that_no_instruction_leads_to_is_understood() {
    let first = ".globl _first, _f, _last\n.p2align 4, 0x90\n_first: movl $5, %eax\n ret\n.p2align 4, 0x90\n";
    let last = ".p2align 4, 0x90\n_last: movl $7, %eax\n ret\n";
    let exception_table =
        ".section __TEXT,__gcc_except_tab\nLtable: .byte 255, 255, 1, 4, 0, 4, Lpad-_f, 0\n";
    let pieces = [
        ("zeros and no-operations after a return", "_f: ret\n nopl (%rax)\n .zero 6\n .fill 18, 1, 0x90\n".to_owned(), ""),
        (
            "a switch after a label that a pointer leads to",
            "_f: jmpq *(%rdi)\n Llabel: leaq Ltable(%rip), %rax\n movslq (%rax,%rsi,4), %rcx\n addq %rax, %rcx\n jmpq *%rcx\n \
             Lcase0: movl $1, %eax\n ret\n Lcase1: movl $2, %eax\n ret\n nop\n \
             Ltable: .long Lcase0-Ltable, Lcase1-Ltable, Lcase0-Ltable, Lcase1-Ltable\n"
                .to_owned(),
            ".section __DATA,__const\n.p2align 3\n.quad Llabel\n",
        ),
        (
            // The first entry reads as `lea`, of an address in the second.
            "a table that looks like instructions",
            "_f: leaq Ltable(%rip), %rax\n movslq (%rax,%rsi,4), %rcx\n addq %rax, %rcx\n jmpq *%rcx\n \
             Lcase0: movl $3, %eax\n ret\n .p2align 2, 0x90\n \
             Ltable: .long 0x58d, 0x10000, Lcase0-Ltable, Lcase0-Ltable\n .fill 0x58d - 16, 1, 0x90\n movl $1, %eax\n ret\n \
             .fill 0x10000 - 0x58d - 6, 1, 0x90\n movl $2, %eax\n ret\n"
                .to_owned(),
            "",
        ),
        (
            // `e8`, the distance's first byte, and the zeros after it read as a call of the next function.
            "a landing pad that ends with a call",
            "_f: .cfi_startproc\n .cfi_personality 155, ___gxx_personality_v0\n .cfi_lsda 16, Ltable\n callq *%rdi\n ret\n \
             Lpad: nop\n callq _target\n .byte 0\n .cfi_endproc\n_last: .fill 0xe8 - 2, 1, 0x90\n ret\n\
             .globl _target\n_target: nop\n ret\n"
                .to_owned(),
            exception_table,
        ),
    ];
    for (what, code, data) in pieces {
        let has_last = code.contains("_last:");
        let source = format!("{first}{code}{}{data}", if has_last { "" } else { last });
        let bytes = assembled("x86_64", &source);
        let mixed = |order: &mut Vec<FunctionIndex>| {
            order.rotate_left(1);
            order.swap(1, 2);
        };
        ordered(&bytes, mixed).unwrap_or_else(|error| panic!("{what}: {error}"));
        let applied = reversed(&bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(is_moved(&bytes, &applied, "_f"), "{what}");
    }
}

// case: Mach-O: x86-64 code that no instruction leads to, stabs of functions outside of the text, the last unwind entry
#[test]
fn functions_of_other_sections_are_read_each_from_its_start() {
    // Thirteen zeros: read as instructions, they swallow the first byte after them.
    let source = ".globl _first, _second\n_first: movl $5, %eax\n ret\n.p2align 4, 0x90\n_second: movl $6, %eax\n ret\n\
        .p2align 4, 0x90\n.section __TEXT,__text_startup,regular,pure_instructions\n.p2align 4\n\
        .globl _start_first, _start_second\n_start_first: jmp _first\n.p2align 4, 0\n.fill 0\n\
        _start_second: leaq _first(%rip), %rsi\n ret\n";
    let bytes = assembled("x86_64", &source.replace("jmp _first\n", "jmpq *%rax\n ret\n"));
    let applied = reversed(&bytes).unwrap();
    assert!(is_moved(&bytes, &applied, "_first"));
}

// case: Mach-O: OCaml and Haskell by general signs
#[test]
fn runtimes_with_tables_of_their_own_are_told_by_their_data() {
    let variable = |name: &str| {
        format!("_f: ret\n.section __TEXT,__cstring,cstring_literals\n.asciz \"some\"\n.asciz \"{name}\"\n")
    };
    for architecture in ARCHITECTURES {
        let call = if architecture == "arm64" { "bl _callee" } else { "callq _callee" };
        let of_returns = |count: usize| {
            let calls: String = (0..count).map(|number| format!("{call}\n Lreturn{number}: nop\n")).collect();
            let words: String =
                (0..count).map(|number| format!(".quad Lreturn{number}\n.quad 16\n")).collect();
            format!(
                "_callee: ret\n_f: {calls} ret\n.section __DATA,__data\n.p2align 3\n.quad {count}\n{words}"
            )
        };
        let described = |count: usize| {
            let functions: String = (0..count)
                .map(|number| {
                    format!(".p2align 3\n.quad 1\n.long 17, 0\n.globl _f{number}\n_f{number}: ret\n")
                })
                .collect();
            let words: String = (0..count).map(|number| format!(".quad _f{number}\n")).collect();
            format!(".globl _g\n_g: ret\n{functions}.section __DATA,__data\n.p2align 3\n{words}")
        };
        let refused = |source: &str, words: &str| is_refused(&assembled(architecture, source), "(M6)", words);
        // Labels of computed jumps, some of them after a call.
        let labels = of_returns(20).replace(".quad 16", ".quad Linside");
        let labels = labels.replace("_f:", "_f: nop\n Linside: nop\n");
        assert!(refused(&variable("OCAMLRUNPARAM"), "OCaml"), "{architecture}");
        assert!(refused(&variable("GHCRTS"), "Haskell"), "{architecture}");
        assert!(refused(&of_returns(20), "OCaml"), "{architecture}");
        assert!(refused(&described(40), "Haskell"), "{architecture}");
        for ordinary in [variable("MY_OCAMLRUNPARAM"), of_returns(4), described(4), labels] {
            assert!(!refused(&ordinary, ""), "{architecture}: {ordinary}");
        }
    }
}

// case: Mach-O: stored distances from one function to others
#[test]
fn x86_64_functions_that_a_sum_leads_to_stay() {
    let handlers: String = (0..4)
        .map(|number| {
            format!(".globl _h{number}\n.p2align 4, 0x90\n_h{number}: movl ${number}, %eax\n ret\n")
        })
        .collect();
    let table = ".section __TEXT,__const\n.p2align 3\nLtable: .long _h0-_h0, _h1-_h0, _h2-_h0, 0\n";
    let wide = ".section __TEXT,__const\n.p2align 3\nLtable: .quad _h0-_h0, _h1-_h0, _h2-_h0, 0\n";
    let narrow = "movslq (%rcx,%rdi,4), %rdx\n addq %rax, %rdx\n";
    for (load, table) in [
        (narrow.to_owned(), table),
        (format!("{narrow} movq %rdx, %rax\n").replace("addq %rax, %rdx", "leaq (%rax,%rdx), %rdx"), table),
        ("movq (%rcx,%rdi,8), %rdx\n addq %rax, %rdx\n".to_owned(), wide),
    ] {
        for go in ["callq *%rdx\n ret\n", "jmpq *%rdx\n"] {
            let source = format!(
                "{handlers}.globl _go, _last\n.p2align 4, 0x90\n_go: leaq _h0(%rip), %rax\n leaq Ltable(%rip), %rcx\n {load} {go}\
                 .p2align 4, 0x90\n_last: movl $9, %eax\n ret\n{table}"
            );
            let bytes = assembled("x86_64", &source);
            let file = MachOFile::parse(&bytes).unwrap();
            let analysis = MachOAnalysis::new(&file).unwrap();
            let reason = |name: &str| analysis.pin_at(address(&bytes, name)).map(|pin| pin.reason);
            let stays = Some(PinReason::ComputedAddress);
            assert_eq!(
                ["_h0", "_h1", "_h2", "_h3", "_last"].map(reason),
                [stays, stays, stays, None, None],
                "{source}"
            );
        }
    }
}
