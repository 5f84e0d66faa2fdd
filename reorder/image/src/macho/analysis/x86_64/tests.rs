//! Linked assembly and C, each with one construct that has to be understood, and damaged code.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::ops::Range;

use proptest::prelude::*;

use super::{X86Context, decode_atom, decode_fixed_section};
use crate::code_reference::CodeForm;
use crate::decoded_atom::DecodedAtom;
use crate::macho::file::MachOFile;
use crate::macho::{data_in_code, fixups, linked, symbol_table};
use crate::pins::PinReason;
use reorder_base::address::Address;

struct Library {
    bytes: Vec<u8>,
}

impl Library {
    fn assembled(source: &str) -> Self {
        let source = format!(".text\n{source}\n.subsections_via_symbols\n");
        Self { bytes: linked::library("x86_64", "s", &source, &[], &[]) }
    }

    fn compiled(source: &str, options: &[&str]) -> Self {
        Self { bytes: linked::library("x86_64", "c", source, options, &[]) }
    }

    fn file(&self) -> MachOFile<'_> {
        MachOFile::parse(&self.bytes).unwrap()
    }

    fn address(&self, name: &str) -> Address {
        let file = self.file();
        let mut symbols = symbol_table::symbols(&file).unwrap();
        let symbol = symbols.find(|symbol| symbol.name == name.as_bytes() && symbol.address().is_some());
        symbol.and_then(|symbol| symbol.address()).unwrap()
    }

    /// Decodes the atom at `name`; data in code counts only if `is_listed`.
    fn decode_with(&self, name: &str, is_listed: bool) -> DecodedAtom {
        let file = self.file();
        let text = file.text().range();
        let mut starts: Vec<Address> = symbol_table::symbols(&file)
            .unwrap()
            .filter_map(|symbol| symbol.address())
            .filter(|address| text.contains(address))
            .collect();
        starts.sort_unstable();
        starts.dedup();
        let listed = data_in_code::read(&file).unwrap();
        let listed: Vec<Range<Address>> = listed
            .iter()
            .filter(|_| is_listed)
            .map(|data| data.start..data.start.plus(u64::from(data.length)))
            .collect();
        let context = X86Context::new(&file, &starts, &listed);
        let start = self.address(name);
        let end = starts.iter().find(|next| **next > start).copied().unwrap_or(text.end);
        let rebases = fixups::rebases(&file).unwrap();
        let entries: Vec<Address> = rebases.iter().map(|slot| slot.target).collect();
        decode_atom(&context, start..end, &entries)
    }

    fn decode(&self, name: &str) -> DecodedAtom {
        self.decode_with(name, true)
    }

    fn reason(&self, name: &str) -> Option<PinReason> {
        self.decode(name).pin.map(|pin| pin.reason)
    }
}

const SWITCH: &str = "
    extern int g(int), h(int), e(void) __attribute__((noreturn));
    int f(int n, int m) {
        switch (n) {
            case 0: return g(m); case 1: return h(m) + 1; case 2: return g(m) - h(n);
            case 3: return m * 77; case 4: return g(1); case 5: return h(2);
            case 7: switch (m) {
                case 0: return g(9); case 1: return h(8) + 1; case 2: return 7; case 3: return g(6) * 5;
                case 4: return h(5) / 3; case 5: return g(3) ^ 9; case 6: return h(1); default: e();
            }
            default: e();
        }
    }
    int after(int n) { return f(n, n) + 1; }";

#[test]
fn jump_tables_in_the_text_are_part_of_their_function() {
    for options in [["-O0"], ["-O1"], ["-O2"], ["-Os"]] {
        let library = Library::compiled(SWITCH, &options);
        for is_listed in [true, false] {
            let decoded = library.decode_with("_f", is_listed);
            assert_eq!(decoded.pin, None, "{options:?} {is_listed}");
            let calls = decoded.references.len();
            assert!(calls >= 8, "{options:?} {is_listed}: only {calls} calls were reached");
            assert!(decoded.ties.is_empty() && decoded.table_words.is_empty());
        }
        let calls: Vec<Address> =
            library.decode("_after").references.iter().map(|found| found.target).collect();
        assert!(calls.is_empty() || calls == [library.address("_f")]);
    }
}

#[test]
fn labels_whose_addresses_are_pointers_are_entries() {
    let library = Library::compiled(
        "extern int g(int);
        int f(const unsigned char *code, int n) {
            static void *const labels[] = { &&add, &&call, &&leave };
            goto *labels[*code];
            add: n += 3; goto *labels[*++code];
            call: n = g(n); goto *labels[*++code];
            leave: return n;
        }",
        &["-O1"],
    );
    let decoded = library.decode("_f");
    assert_eq!(decoded.pin, None);
    assert!(decoded.references.iter().any(|found| !library.file().text().range().contains(&found.target)));
}

#[test]
fn tail_calls_are_references_whatever_their_condition() {
    let library = Library::assembled(
        "_f: testl %edi, %edi\n je _g\n jmp _h\n .p2align 4, 0x90\n_g: ret\n .p2align 4, 0x90\n_h: ret",
    );
    let decoded = library.decode("_f");
    assert_eq!((decoded.pin, decoded.ties.as_slice()), (None, &[][..]));
    let targets: Vec<Address> = decoded.references.iter().map(|found| found.target).collect();
    assert_eq!(targets, [library.address("_g"), library.address("_h")]);
    let forms: Vec<CodeForm> = decoded.references.iter().map(|found| found.form).collect();
    assert_eq!(forms, [CodeForm::Relative32 { end: 4 }; 2]);
    // The first field follows the two bytes of the opcode, which follow the comparison.
    assert_eq!(decoded.references[0].place, library.address("_f").plus(4));
}

#[test]
fn immediates_after_an_address_count_to_its_end() {
    let library =
        Library::assembled("_f: cmpl $1000, _x(%rip)\n cmpb $3, _x(%rip)\n ret\n.data\n_x: .long 0");
    let forms: Vec<CodeForm> = library.decode("_f").references.iter().map(|found| found.form).collect();
    assert_eq!(forms, [CodeForm::Relative32 { end: 8 }, CodeForm::Relative32 { end: 5 }]);
}

#[test]
fn short_branches_and_running_over_the_end_tie() {
    let library = Library::assembled(
        "_f: .byte 0x75, 1\n ret\n_g: nop\n ret\n.p2align 4, 0x90\n_runs: xorl %eax, %eax\n.p2align 4, 0x90\n_last: ret
        _calls: pushq %rax\n callq _abort\n .p2align 4, 0x90\n_end: ret",
    );
    assert_eq!(library.decode("_f").ties, [library.address("_g")]);
    assert_eq!(library.decode("_runs").ties, [library.address("_last")]);
    let decoded = library.decode("_calls");
    assert_eq!((decoded.pin, decoded.ties.as_slice()), (None, &[][..]), "abort does not return");
}

#[test]
fn the_address_of_an_end_is_the_next_functions_as_well() {
    let library = Library::assembled(
        "_f: leaq _g(%rip), %rax\n ret\n.p2align 4, 0x90\n_g: leaq _f(%rip), %rax\n ret\n_h: leaq Lend(%rip), %rax\n ret\nLend:",
    );
    let decoded = library.decode("_f");
    assert_eq!((decoded.ties.as_slice(), decoded.references.len()), (&[library.address("_g")][..], 1));
    assert_eq!(library.decode("_g").ties, []);
    assert_eq!(library.reason("_h"), Some(PinReason::PointerInside));
}

#[test]
fn tables_outside_of_the_text_follow_their_function() {
    let library = Library::assembled(
        "_f: leaq l_table(%rip), %rax\n movslq (%rax,%rdi,4), %rcx\n addq %rax, %rcx\n jmpq *%rcx
        La: movl $1, %eax\n ret\nLb: callq _g\n ret\n.p2align 4, 0x90\n_g: ret
        .section __TEXT,__const\n.p2align 2\nl_table: .long La-l_table, Lb-l_table, La-l_table\n.long 5, 6",
    );
    let decoded = library.decode("_f");
    assert_eq!((decoded.pin, decoded.references.len(), decoded.table_words.len()), (None, 2, 3));
    let base = decoded.table_words[0].place;
    for (index, word) in decoded.table_words.iter().enumerate() {
        assert_eq!((word.place, word.base), (base.plus(4 * index as u64), base));
    }
    assert_eq!(decoded.table_words[0].target, decoded.table_words[2].target);
}

#[test]
fn bytes_that_nothing_reaches_make_their_atom_opaque() {
    let library = Library::assembled(
        "_f: ret\n .byte 0xe8\n .long _h - . - 4\n ret\n.p2align 4, 0x90\n_g: ret\n.p2align 4, 0x90\n_h: ret",
    );
    let decoded = library.decode("_f");
    assert_eq!(decoded.pin.map(|pin| pin.reason), Some(PinReason::NotDecodable));
    assert!(decoded.references.is_empty() && decoded.possible_targets.contains(&library.address("_h")));
    assert!(decoded.possible_targets.contains(&library.address("_g")), "the bytes may run into it");
}

#[test]
fn what_cannot_be_explained_stays() {
    let library = Library::assembled(
        "_sum: leaq 5(%rdi,%rsi), %rax\n jmpq *%rax\n .p2align 4, 0x90
        _argument: jmpq *%rdi\n .p2align 4, 0x90
        _memory: jmpq *8(%rdi)\n .p2align 4, 0x90
        _place: leaq 0(%rip), %rax\n addq %rdi, %rax\n ret\n .p2align 4, 0x90
        _lock: testl %edi, %edi\n je 1f\n lock\n1: incl (%rsi)\n ret\n .p2align 4, 0x90
        _port: outb %al, $3\n ret\n .p2align 4, 0x90
        _inside: callq _lock+5\n ret",
    );
    assert_eq!(library.reason("_sum"), Some(PinReason::UnresolvedJump));
    assert_eq!((library.reason("_argument"), library.reason("_memory")), (None, None));
    assert_eq!(library.reason("_place"), Some(PinReason::ComputedAddress));
    assert_eq!(library.reason("_lock"), None);
    assert_eq!(library.reason("_port"), Some(PinReason::NotDecodable));
    assert_eq!(library.reason("_inside"), Some(PinReason::BranchInsideInstruction));
}

#[test]
fn other_sections_of_code_are_read_from_front_to_back() {
    let library = Library::assembled(
        "_f: ret\n.section __TEXT,__text_startup,regular,pure_instructions\n_s: callq _f\n leaq _f(%rip), %rdi\n ret",
    );
    let file = library.file();
    let section = file.section(b"__TEXT", b"__text_startup").unwrap();
    let found = decode_fixed_section(&file, section, &[]);
    let places: Vec<u64> = found.iter().map(|found| found.place.distance_from(section.address)).collect();
    assert_eq!(places, [1, 8]);
    assert!(found.iter().all(|found| found.target == library.address("_f")));
}

proptest! {
    #[test]
    fn findings_in_damaged_code_are_inside_the_atom(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        entries in prop::collection::vec(0u64..0x2000, 0..4),
        listed in prop::collection::vec((0u64..0x2000, 0u64..64), 0..3),
    ) {
        static LIBRARY: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut bytes = LIBRARY.get_or_init(|| Library::compiled(SWITCH, &["-O1"]).bytes).clone();
        let (start, size) = {
            let file = MachOFile::parse(&bytes).unwrap();
            (file.text().offset, file.text().size as usize)
        };
        for (place, byte) in edits {
            bytes[start + place.index(size)] = byte;
        }
        let file = MachOFile::parse(&bytes).unwrap();
        let text = file.text().range();
        let entries: Vec<Address> = entries.iter().map(|entry| text.start.plus(entry % text.start.0.max(1))).collect();
        let listed: Vec<Range<Address>> =
            listed.iter().map(|(start, size)| text.start.plus(*start)..text.start.plus(start + size)).collect();
        let context = X86Context::new(&file, &[], &listed);
        let decoded = decode_atom(&context, text.clone(), &entries);
        prop_assert!(decoded.references.iter().all(|found| text.contains(&found.place)));
        prop_assert!(decoded.possible_targets.is_empty() || decoded.pin.is_some());
    }
}
