//! Whole images of linked assembly: constraints between functions.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fmt::Write as _;

use super::*;
use crate::entry_rounds::MAX_ROUNDS;
use crate::macho::linked::library;
use crate::macho::symbol_table::symbols;
use reorder_base::error::Error;

/// A library for arm64 of which every function is an atom.
fn linked(source: &str) -> Vec<u8> {
    let source = format!(".text\n{source}\n.subsections_via_symbols\n");
    library("arm64", "s", &source, &[], &["-ignore_optimization_hints"])
}

fn address(file: &MachOFile<'_>, name: &str) -> Address {
    let mut all = symbols(file).unwrap();
    all.find(|symbol| symbol.name == name.as_bytes()).and_then(|symbol| symbol.address()).unwrap()
}

fn text(error: Error) -> String {
    error.to_string()
}

#[test]
fn functions_whose_last_entries_are_found_too_late_stay() {
    // Each function is entered in the middle by the one before it, which is only known when that one was entered itself.
    let mut source = String::from("_f0: b _f1+4\n");
    for number in 1..MAX_ROUNDS + 1 {
        writeln!(source, "_f{number}: ret\n b _f{}+4", number + 1).unwrap();
    }
    let last = MAX_ROUNDS + 1;
    writeln!(source, "_f{last}: adrp x19, _g@PAGE\n add x0, x19, _g@PAGEOFF\n ret\n_g: ret").unwrap();
    let bytes = linked(&source);
    let file = MachOFile::parse(&bytes).unwrap();
    let analysis = MachOAnalysis::new(&file).unwrap();
    let reason = |name: &str| analysis.pin_at(address(&file, name)).map(|pin| pin.reason);
    assert_eq!(reason(&format!("_f{last}")), Some(PinReason::InsideAddressed));
    assert_eq!(reason("_g"), Some(PinReason::OpaqueReference), "it may be what the page is for");
}

/// A function with the exception table `table`.
fn with_table(name: &str, table: &str, body: &str) -> String {
    format!(
        "{name}: .cfi_startproc\n .cfi_personality 155, ___gxx_personality_v0\n .cfi_lsda 16, {table}\n \
         stp x29, x30, [sp, #-16]!\n mov x29, sp\n .cfi_def_cfa w29, 16\n .cfi_offset w30, -8\n .cfi_offset w29, -16\n \
         {body}\n ldp x29, x30, [sp], #16\n ret\n .cfi_endproc\n"
    )
}

#[test]
fn what_an_exception_table_counts_from_its_start_is_one_unit() {
    let table = ".section __TEXT,__gcc_except_tab\nLtable: .byte 255, 255, 1, 4, 0, 4, 8, 0\n";
    let function = with_table("_f", "Ltable", &"b 1f\n 1: ".repeat(30));
    let bytes = linked(&format!("_first: ret\n{function}_last: ret\n{table}"));
    let file = MachOFile::parse(&bytes).unwrap();
    let (start, end) = (address(&file, "_f"), address(&file, "_last"));
    for (cuts, is_movable) in [(1, true), (16, true), (17, false), (30, false)] {
        let cuts: Vec<Address> = (1..=cuts).map(|number| start.plus(4 * number)).collect();
        let analysis = MachOAnalysis::with_cuts(&file, &cuts).unwrap();
        let unit = analysis.unit_at(start).unwrap();
        assert_eq!((unit.range(), unit.pin.is_none()), (start..end, is_movable), "{} cuts", cuts.len());
    }
}

#[test]
fn many_functions_with_one_long_exception_table_are_refused() {
    let sites = 16_000;
    let mut source: String =
        (0..2_000).map(|number| with_table(&format!("_f{number}"), "Ltable", "nop")).collect();
    write!(
        source,
        ".section __TEXT,__gcc_except_tab\nLtable: .byte 255, 255, 1\n .uleb128 {}\n .rept {sites}\n .byte 0, 4, 8, 0\n .endr\n",
        4 * sites
    )
    .unwrap();
    let bytes = linked(&source);
    let file = MachOFile::parse(&bytes).unwrap();
    let refused = MachOAnalysis::new(&file).map(|_| ()).map_err(text);
    assert!(
        refused.as_ref().is_err_and(|error| error.contains("M11") && error.contains("longer")),
        "{refused:?}"
    );
}

#[test]
fn a_call_that_may_come_back_keeps_what_follows() {
    let saves = "stp x29, x30, [sp, #-16]!\n";
    let restores = "ldp x29, x30, [sp], #16\n ret\n";
    let unit_is_alone = |bytes: &[u8], name: &str| {
        let file = MachOFile::parse(bytes).unwrap();
        let analysis = MachOAnalysis::new(&file).unwrap();
        analysis.unit_at(address(&file, name)).unwrap().end == address(&file, "_next")
    };
    let arm64 = |next: &str| {
        let source =
            format!("_one: ret\n_f: {saves} bl _one\n_next: {next}\n_last: bl _one\n .globl _f, _next\n");
        unit_is_alone(&linked(&source), "_f")
    };
    assert!(arm64(&format!("{saves} bl _one\n {restores}")), "a function of its own");
    assert!(arm64("add x0, x0, #1\n ret"), "one that calls nothing");
    assert!(arm64("mov x9, x30\n bl _one\n ret x9"), "one that saves what it returns to elsewhere");
    assert!(!arm64(restores), "the end of a function");
    assert!(!arm64("bl _one\n b _one"), "one that would lose where it came from");
    assert!(!arm64("mov x30, x19\n ret"));
    assert!(!arm64("ret x19"));
    assert!(!arm64("b _f"), "a loop");

    let x86_64 = |first: &str, next: &str| {
        let source = format!(
            ".intel_syntax noprefix\n .text\n_one: ret\n_f: {first} call _one\n_next: {next}\n_last: ret\n .subsections_via_symbols\n"
        );
        unit_is_alone(&library("x86_64", "s", &source, &[], &[]), "_f")
    };
    let next = "push rbp\n call _one\n pop rbp\n ret";
    assert!(x86_64("push rbp\n", next), "a function of its own");
    assert!(x86_64("push rax\n", "mov eax, 1\n ret"), "it would return to what was pushed");
    assert!(x86_64("sub rsp, 8\n test edi, edi\n je 1f\n add rsp, 8\n ret\n 1:", next));
    assert!(!x86_64("push rbp\n", "pop rbp\n ret"), "the end of a function");
    assert!(!x86_64("", next), "the stack is as at the entry");
    assert!(!x86_64("sub rsp, 8\n call _one\n add rsp, 8\n", "ret"), "the stack is as at the entry again");
}

#[test]
fn the_marks_of_the_sections_start_and_end_stay() {
    let (start, end) = ("section$start$__TEXT$__text", "section$end$__TEXT$__text");
    let in_code = |name: &str| format!("adrp x0, {name}@GOTPAGE\n ldr x0, [x0, {name}@GOTPAGEOFF]\n");
    let pin_of_first = |body: &str, data: &str| {
        let bytes = linked(&format!(
            "_first: ret\n_f: {body} ret\n_g: ret\n .section __DATA,__const\n .p2align 3\n {data}"
        ));
        let file = MachOFile::parse(&bytes).unwrap();
        let analysis = MachOAnalysis::new(&file).unwrap();
        let reason = analysis.pin_at(address(&file, "_first")).map(|pin| pin.reason);
        let all = analysis.data.iter().all(|reference| reference.target != file.text().end());
        assert!(all && analysis.unit_at(file.text().end()).is_none());
        reason
    };
    let both = format!("{}{}", in_code(start), in_code(end));
    assert_eq!(pin_of_first(&both, ""), Some(PinReason::NamedSection));
    assert_eq!(pin_of_first("", &format!(".quad {start}\n .quad {end}")), Some(PinReason::NamedSection));
    assert_eq!(pin_of_first(&in_code(start), ""), None);
    assert_eq!(pin_of_first(&in_code(end), ".quad _f"), None);
}

#[test]
fn targets_of_a_table_between_functions_stay() {
    let dispatch = "adr x9, _table\n ldrsw x10, [x9, x8, lsl #2]\n add x10, x10, x9\n br x10\n";
    let table = ".long 1f-_table, _other+4-_table, 1b-_table\n";
    let own = format!(
        "_f: {} 1: nop\n ret\n 2: .long 1b-2b, _other+4-2b, 1b-2b\n",
        dispatch.replace("_table", "2f")
    );
    let apart = format!(
        "_f: {} 1: nop\n ret\n _table: {}",
        dispatch.replace("adr x9, _table", "adr x9, #24"),
        table.replace("1f", "1b")
    );
    for source in [own, apart] {
        let bytes =
            linked(&format!("_first: ret\n{source}_next: ret\n_other: nop\n nop\n nop\n ret\n_last: ret"));
        let file = MachOFile::parse(&bytes).unwrap();
        let analysis = MachOAnalysis::new(&file).unwrap();
        let is_pinned = |name: &str| analysis.pin_at(address(&file, name)).is_some();
        assert_eq!(
            ["_first", "_f", "_next", "_other", "_last"].map(is_pinned),
            [false, true, false, true, false],
            "{source}"
        );
    }
    let source = ".intel_syntax noprefix\n .text\n_first: ret\n\
        _f: lea rax, [rip + 2f]\n movsxd rcx, dword ptr [rax + 4*rdi]\n add rcx, rax\n jmp rcx\n 1: ret\n .p2align 2\n \
        2: .long 1b-2b, _other+1-2b, 1b-2b\n .p2align 4\n_next: ret\n_other: nop\n ret\n_last: ret\n .subsections_via_symbols\n";
    let bytes = library("x86_64", "s", source, &[], &[]);
    let file = MachOFile::parse(&bytes).unwrap();
    let analysis = MachOAnalysis::new(&file).unwrap();
    let is_pinned = |name: &str| analysis.pin_at(address(&file, name)).is_some();
    assert_eq!(["_first", "_f", "_other", "_last"].map(is_pinned), [false, true, true, false]);
}
