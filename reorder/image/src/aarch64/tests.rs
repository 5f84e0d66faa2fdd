//! Linked assembly, each function with one thing that has to be understood, and damaged code.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use proptest::prelude::*;

use super::*;
use crate::code_reference::CodeForm;
use crate::macho::analysis::atoms::Atoms;
use crate::macho::analysis::{MachOAnalysis, arm64_context};
use crate::macho::file::MachOFile;
use crate::macho::{linked, symbol_table};

struct Library {
    bytes: Vec<u8>,
}

impl Library {
    /// Linker optimization hints are left alone: what is written is what is linked.
    fn assembled(source: &str) -> Self {
        let source = format!(".text\n{source}\n.subsections_via_symbols\n");
        let bytes = linked::library("arm64", "s", &source, &[], &["-ignore_optimization_hints"]);
        Self { bytes }
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

    fn atoms(&self) -> Atoms {
        Atoms::collect(&self.file(), None, &[]).unwrap()
    }

    fn decode(&self, name: &str, entries: &[Address]) -> DecodedAtom {
        let (file, atoms) = (self.file(), self.atoms());
        let context = arm64_context(&file, &atoms, entries);
        let atom = atoms.range(atoms.containing(self.address(name)).unwrap());
        decode_atom(&context, atom, entries)
    }

    fn forms_to(&self, decoded: &DecodedAtom, name: &str) -> Vec<CodeForm> {
        let target = self.address(name);
        let all = decoded.references.iter().filter(|reference| reference.target == target);
        all.map(|reference| reference.form).collect()
    }
}

const PAIR: [CodeForm; 2] = [CodeForm::PageOffset { scale: 0 }, CodeForm::Page];

#[test]
fn the_halves_of_an_address_are_found_wherever_they_are() {
    let library = Library::assembled(
        "_near: adrp x0, _f@PAGE\n add x0, x0, _f@PAGEOFF\n ret\n\
         _apart: adrp x0, _f@PAGE\n mov x9, x1\n mov x2, x9\n add x3, x0, _f@PAGEOFF\n ret\n\
         _loop: adrp x8, _f@PAGE\n 1: cbz x1, 2f\n sub x1, x1, #1\n b 1b\n 2: add x0, x8, _f@PAGEOFF\n ret\n\
         _call: adrp x19, _f@PAGE\n bl _f\n add x0, x19, _f@PAGEOFF\n ret\n\
         _moved: adrp x8, _f@PAGE\n mov x9, x8\n add x0, x9, _f@PAGEOFF\n ret\n\
         _f: ret",
    );
    for name in ["_near", "_apart", "_loop", "_moved"] {
        let decoded = library.decode(name, &[]);
        assert_eq!((decoded.pin, library.forms_to(&decoded, "_f")), (None, PAIR.to_vec()), "{name}");
        assert!(decoded.ties.is_empty() && decoded.possible_targets.is_empty(), "{name}");
    }
    let call = library.decode("_call", &[]);
    assert_eq!(library.forms_to(&call, "_f"), [&[CodeForm::Branch26], &PAIR[..]].concat());
}

#[test]
fn what_an_unknown_use_might_mean_stays() {
    let library = Library::assembled(
        "_lost: adrp x0, _f@PAGE\n bl _f\n add x0, x0, _f@PAGEOFF\n ret\n\
         _stored: adrp x0, _f@PAGE\n str x0, [sp]\n add x0, x0, _f@PAGEOFF\n ret\n\
         _shared: adrp x8, _f@PAGE\n add x0, x8, _f@PAGEOFF\n add x1, x8, _g@PAGEOFF\n ret\n\
         _f: ret\n _g: ret",
    );
    for name in ["_lost", "_stored"] {
        let decoded = library.decode(name, &[]);
        assert_eq!(decoded.pin.map(|pin| pin.reason), Some(PinReason::UnpairedAddress), "{name}");
        assert!(decoded.possible_targets.contains(&library.address("_g")), "all of the page, {name}");
    }
    let shared = library.decode("_shared", &[]);
    assert_eq!(shared.possible_targets, [library.address("_f"), library.address("_g")]);
}

#[test]
fn a_landing_pad_uses_what_calls_leave_in_registers() {
    let source = |register: &str, second: &str| {
        format!(
            "_f: adrp {register}, _g@PAGE\n bl _g\n add x0, {register}, _g@PAGEOFF\n {second}\n ret\n\
             2: add x1, {register}, _g@PAGEOFF\n ret\n _g: ret"
        )
    };
    let decoded = |register: &str, second: &str| {
        let library = Library::assembled(&source(register, second));
        let lines = if second.is_empty() { 4 } else { 4 + second.lines().count() as u64 };
        let decoded = library.decode("_f", &[library.address("_f").plus(lines * 4)]);
        (decoded.pin.map(|pin| pin.reason), library.forms_to(&decoded, "_g").len())
    };
    // ADRP, the call, and both ADD.
    assert_eq!(decoded("x19", ""), (None, 4));
    // Another call brings something else, or the call does not preserve it.
    assert_eq!(decoded("x19", "mov x19, x2\n bl _g").0, Some(PinReason::UnpairedAddress));
    assert_eq!(decoded("x9", "").0, Some(PinReason::UnpairedAddress));
}

#[test]
fn a_page_that_is_for_data_alone_may_be_read() {
    // The constant is on the last page of the text.
    let library = Library::assembled(
        "_data: adrp x9, _constant@PAGE\n ldr d0, [x9, _constant@PAGEOFF]\n cbz x9, 1f\n 1: ret\n\
         _both: adrp x9, _constant@PAGE\n ldr d0, [x9, _constant@PAGEOFF]\n cbz x9, 1f\n adrp x8, _f@PAGE\n\
         add x8, x8, _f@PAGEOFF\n 1: ret\n\
         _f: ret\n .section __TEXT,__const\n .p2align 3\n _constant: .quad 1\n",
    );
    let data = library.decode("_data", &[]);
    assert_eq!((data.pin, data.possible_targets), (None, Vec::new()));
    assert_eq!(library.decode("_both", &[]).pin.map(|pin| pin.reason), Some(PinReason::UnpairedAddress));
}

#[test]
fn tables_are_read_as_far_as_they_reach() {
    let library = Library::assembled(
        "_bytes: adrp x9, _table@PAGE\n add x9, x9, _table@PAGEOFF\n adr x10, 1f\n ldrb w11, [x9, x8]\n \
         add x10, x10, x11, lsl #2\n br x10\n 1: b _f\n b _g\n mov x0, x1\n b _f\n\
         _words: adrp x9, _wide@PAGE\n add x9, x9, _wide@PAGEOFF\n ldrsw x10, [x9, x8, lsl #2]\n add x10, x10, x9\n \
         br x10\n 2: b _f\n 3: b _g\n\
         _f: ret\n _g: ret\n\
         .section __TEXT,__const\n _table: .byte 0, 1, 2, 3\n _next: .byte 9\n\
         .section __DATA,__const\n .p2align 2\n _wide: .long 2b-_wide, 3b-_wide\n .long 0x7fffffff\n",
    );
    let bytes = library.decode("_bytes", &[]);
    assert_eq!(bytes.pin, None);
    let branches = bytes.references.iter().filter(|reference| reference.form == CodeForm::Branch26);
    assert_eq!(branches.count(), 3, "all cases are reached");
    let words = library.decode("_words", &[]);
    assert_eq!(words.pin, None);
    let start = library.address("_words");
    let targets: Vec<u64> = words.table_words.iter().map(|word| word.target.distance_from(start)).collect();
    assert_eq!(targets, [20, 24]);
}

#[test]
fn a_comparison_ends_a_table() {
    // Read further, bytes of the string would be cases in the middle of the pair.
    let source = |comparison: &str| {
        format!(
            "_f: {comparison}\n adrp x9, _table@PAGE\n add x9, x9, _table@PAGEOFF\n adr x10, 1f\n ldrb w11, [x9, x8]\n\
             add x10, x10, x11, lsl #2\n br x10\n 1: ret\n adrp x0, _g@PAGE\n add x0, x0, _g@PAGEOFF\n 2: ret\n\
             _g: ret\n .section __TEXT,__const\n _table: .byte 0, 1\n .ascii \"\\2\\2\"\n"
        )
    };
    let reason =
        |comparison| Library::assembled(&source(comparison)).decode("_f", &[]).pin.map(|pin| pin.reason);
    assert_eq!(reason("cmp w8, #1\n b.hi 2f"), None);
    assert_eq!(reason("cmp w8, #2\n b.hs 2f"), None);
    assert_eq!(reason("nop"), Some(PinReason::UnpairedAddress));
}

#[test]
fn a_call_that_does_not_return_leaves_tables_known() {
    let source = |register: &str| {
        format!(
            "_f: adrp {register}, _table@PAGE\n add {register}, {register}, _table@PAGEOFF\n cbnz x0, 2f\n bl _g\n\
             2: adr x10, 1f\n ldrb w11, [{register}, x8]\n add x10, x10, x11, lsl #2\n br x10\n 1: ret\n ret\n\
             _g: brk #1\n .section __TEXT,__const\n _table: .byte 0, 1\n _next: .byte 9\n"
        )
    };
    // In x9 nothing is returned; in x1 something may be.
    for (register, reason) in [("x9", None), ("x1", Some(PinReason::UnresolvedJump))] {
        let decoded = Library::assembled(&source(register)).decode("_f", &[]);
        assert_eq!(decoded.pin.map(|pin| pin.reason), reason, "{register}");
    }
}

#[test]
fn scalable_vectors_do_not_hide_a_jump_through_a_table() {
    // ld1sb { z4.h }, p0/z, [x5] between the sum and the jump, as dav1d has it.
    let library = Library::assembled(
        "_words: adrp x9, _wide@PAGE\n add x9, x9, _wide@PAGEOFF\n ldrsw x10, [x9, x8, lsl #2]\n add x10, x10, x9\n \
         .long 0xa5c0a0a4\n br x10\n 1: b _f\n 2: ret\n\
         _f: ret\n\
         .section __DATA,__const\n .p2align 2\n _wide: .long 1b-_wide, 2b-_wide\n .long 0x7fffffff\n",
    );
    let words = library.decode("_words", &[]);
    assert_eq!((words.pin, words.table_words.len()), (None, 2));
}

#[test]
fn computed_jumps_are_explained_or_keep_their_function() {
    let library = Library::assembled(
        "_inside: adr x8, 1f\n add x8, x8, x0\n br x8\n 1: ret\n ret\n\
         _pointer: ldr x8, [x0, x1, lsl #3]\n br x8\n\
         _selected: adrp x8, _f@PAGE\n add x8, x8, _f@PAGEOFF\n cmp x0, #0\n csel x8, x8, x1, eq\n br x8\n\
         _f: ret",
    );
    let reason = |name: &str| library.decode(name, &[]).pin.map(|pin| pin.reason);
    assert_eq!(reason("_inside"), Some(PinReason::UnresolvedJump));
    assert_eq!((reason("_pointer"), reason("_selected")), (None, None));
}

#[test]
fn a_number_added_to_a_label_leads_to_no_other_function() {
    let library = Library::assembled(
        "_labels: adrp x8, _f@PAGE\n add x8, x8, _f@PAGEOFF\n str x8, [x0]\n\
         adr x9, 1f\n ldrh w10, [x1, x2, lsl #1]\n add x9, x9, x10, lsl #2\n br x9\n 1: ret\n\
         _anything: adrp x8, _f@PAGE\n add x8, x8, _f@PAGEOFF\n ldr x9, [x0]\n sub x8, x8, x9\n br x8\n\
         _other: adrp x8, _f@PAGE\n add x8, x8, _f@PAGEOFF\n ldr x9, [x0]\n add x8, x9, x8\n br x8\n\
         _f: ret",
    );
    for (name, keeps) in [("_labels", false), ("_anything", true), ("_other", true)] {
        let decoded = library.decode(name, &[]);
        assert_eq!(decoded.pin.map(|pin| pin.reason), Some(PinReason::UnresolvedJump), "{name}");
        assert_eq!(decoded.possible_targets.contains(&library.address("_f")), keeps, "{name}");
    }
}

#[test]
fn a_distance_in_the_code_may_be_added_to_a_label() {
    let library = Library::assembled(
        "_stored: adr x1, _stored\n ldr x0, 1f\n add x0, x0, x1\n blr x0\n ret\n .p2align 3\n\
         1: .quad _f - _stored\n\
         _built: adr x1, _built\n movz x0, #24\n add x0, x0, x1\n blr x0\n nop\n ret\n\
         _f: ret\n _g: ret",
    );
    for name in ["_stored", "_built"] {
        let decoded = library.decode(name, &[]);
        assert_eq!(decoded.pin.map(|pin| pin.reason), Some(PinReason::UnresolvedJump), "{name}");
        assert!(decoded.possible_targets.contains(&library.address("_f")), "{name}");
        assert!(!decoded.possible_targets.contains(&library.address("_g")), "{name}");
    }
}

#[test]
fn short_references_tie() {
    let library = Library::assembled(
        "_falls: mov x0, x1\n\
         _next: tbz w0, #3, #16\n ret\n\
         _stops: bl _far\n nop\n\
         _far: ret",
    );
    assert_eq!(library.decode("_falls", &[]).ties, [library.address("_next")]);
    assert_eq!(library.decode("_next", &[]).ties, [library.address("_far")]);
    assert!(library.decode("_stops", &[]).ties.is_empty(), "a call at the end does not come back");
}

#[test]
fn data_that_looks_like_code_keeps_what_it_might_mean() {
    let library = Library::assembled(
        "_mixed: ret\n .long 0x94000003\n .long 0x12345678\n\
         _plain: ret\n .long 0x3f800000\n\
         _f: ret\n _table: .long 8, -16, 4\n _g: ret",
    );
    let mixed = library.decode("_mixed", &[]);
    assert_eq!(mixed.pin.map(|pin| pin.reason), Some(PinReason::NotDecodable));
    assert!(mixed.references.is_empty());
    assert!(mixed.possible_targets.contains(&library.address("_mixed").plus(16)));
    assert_eq!(library.decode("_plain", &[]).pin, None, "a number that refers to nothing moves along");
    assert!(library.decode("_table", &[]).is_table);
    let analysis = MachOAnalysis::new(&library.file()).unwrap();
    let reason = analysis.pin_at(library.address("_table")).map(|pin| pin.reason);
    assert_eq!(reason, Some(PinReason::UnprovenTable), "nothing tells whose it is");
}

#[test]
fn shortened_pairs_are_known_by_their_nop() {
    let library = Library::assembled(
        "_address: adr x0, #65536\n nop\n ret\n\
         _load: nop\n ldr x1, #65536\n ret\n\
         _between: adr x0, #65536\n mov x1, x0\n nop\n ret\n\
         _vector: nop\n ldr d1, #65536\n ret\n\
         _uneven: nop\n ldr x1, #65532\n ret\n\
         _last: ret",
    );
    let forms = |name: &str| -> Vec<CodeForm> {
        library.decode(name, &[]).references.iter().map(|reference| reference.form).collect()
    };
    assert_eq!(forms("_address"), [CodeForm::RelaxedAdr { nop: 1 }]);
    assert_eq!(forms("_load"), [CodeForm::RelaxedLoad { nop: -1 }]);
    assert_eq!((forms("_between"), forms("_vector")), (vec![CodeForm::Adr], vec![CodeForm::LoadLiteral]));
    // A load through a register counts in eight bytes, a literal in four.
    let is_even = library.address("_uneven").plus(4 + 65532).0.is_multiple_of(8);
    assert_eq!(forms("_uneven") == [CodeForm::RelaxedLoad { nop: -1 }], is_even);
}

proptest! {
    /// For any words the decoder returns, and lists no references for an atom that is not understood.
    #[test]
    fn any_words_have_an_answer(words in prop::collection::vec(any::<u32>(), 1..64), entry in 0_u64..64) {
        static IMAGE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let image = IMAGE.get_or_init(|| {
            let source = format!("_f:\n{}_g: ret", " nop\n".repeat(64));
            Library::assembled(&source).bytes
        });
        let mut library = Library { bytes: image.clone() };
        let start = library.address("_f");
        let offset = library.file().text().offset;
        for (index, word) in words.iter().enumerate() {
            library.bytes[offset + index * 4..offset + index * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
        let decoded = library.decode("_f", &[start.plus(entry * 4)]);
        let text = library.file().text().range();
        prop_assert!(decoded.references.iter().all(|reference| text.contains(&reference.place)));
        if decoded.pin.is_some_and(|pin| pin.reason == PinReason::NotDecodable) {
            prop_assert!(decoded.references.is_empty() && decoded.table_words.is_empty());
        }
    }
}
