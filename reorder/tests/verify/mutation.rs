//! How the verifier reacts to damage in the new image.

use crate::layout::{Section, add, header_field, section, sections};
use crate::proof::{assert_proven, count, report};
use crate::relinked::Relinked;
use reorder_base::address::NewAddress;
use reorder_verify::{Check, VerifyOptions, recover_moves, verify};

/// One deliberate kind of damage, and the check that must detect it.
struct Damage {
    name: &'static str,
    check: Check,
    apply: fn(&mut Vec<u8>, &[Section], &Relinked, u8),
}

const DAMAGES: [Damage; 12] = [
    Damage {
        name: "unwind search table out of order",
        check: Check::UnwindSearchTable,
        apply: |bytes, sections, _, _| {
            let rows = section(sections, ".eh_frame_hdr").offset + 12;
            for byte in 0..8 {
                bytes.swap(rows + byte, rows + 8 + byte);
            }
        },
    },
    Damage {
        name: "relocation addend",
        check: Check::LoaderPointers,
        apply: |bytes, sections, _, _| add(bytes, section(sections, ".rela.dyn").offset + 16, 1),
    },
    Damage {
        name: "relocation place",
        check: Check::Unchanged,
        apply: |bytes, sections, _, _| add(bytes, section(sections, ".rela.dyn").offset, 8),
    },
    Damage {
        name: "value of an unmoved symbol",
        check: Check::Symbols,
        apply: |bytes, sections, _, _| {
            let table = section(sections, ".symtab");
            let last = (table.offset..table.offset + table.size)
                .step_by(24)
                .find(|&at| bytes[at + 4] & 15 == 2 && bytes[at + 16] == 0 && bytes[at + 6] != 0);
            add(bytes, last.expect("a function of unknown size") + 8, 16);
        },
    },
    Damage {
        name: "name of a symbol",
        check: Check::Unchanged,
        apply: |bytes, sections, _, _| add(bytes, section(sections, ".symtab").offset + 48, 1),
    },
    Damage { name: "entry point", check: Check::LoaderPointers, apply: |bytes, _, _, _| add(bytes, 0x18, 4) },
    Damage { name: "header byte", check: Check::Unchanged, apply: |bytes, _, _, _| add(bytes, 0x30, 1) },
    Damage {
        name: "section header byte",
        check: Check::Unchanged,
        apply: |bytes, _, _, _| {
            let headers = header_field(bytes, 0x28);
            add(bytes, headers + 64 + 48, 1);
        },
    },
    Damage {
        name: "initialiser in .dynamic",
        check: Check::LoaderPointers,
        apply: |bytes, sections, _, _| {
            let dynamic = section(sections, ".dynamic");
            let initialiser =
                (dynamic.offset..dynamic.offset + dynamic.size).step_by(16).find(|&at| bytes[at] == 12);
            add(bytes, initialiser.expect("DT_INIT") + 8, 1);
        },
    },
    Damage {
        name: "length of the build-id",
        check: Check::Unchanged,
        apply: |bytes, sections, _, _| add(bytes, section(sections, ".note.gnu.build-id").offset + 4, 252),
    },
    Damage {
        name: "padding over start code",
        check: Check::Gaps,
        apply: |bytes, sections, pair, filler| {
            let text = section(sections, ".text");
            let at = text.offset + (pair.start_code.start - text.address) as usize;
            bytes[at..at + 4].fill(filler);
        },
    },
    Damage {
        name: "string",
        check: Check::Unchanged,
        apply: |bytes, sections, _, _| add(bytes, section(sections, ".rodata").offset + 4, 1),
    },
];

#[test]
fn each_kind_of_damage_is_seen_by_the_check_for_it() {
    assert_damages_are_seen(&Relinked::build(&[]), 0xcc);
}

/// Adds `amount` to each of `fields`, a table and an offset in its entries, in each entry that the linker kept.
pub(crate) fn assert_kept_relocations_are_checked(mut pair: Relinked, fields: &[(&str, usize)], amount: u8) {
    pair.keep_relocations_in_old_order();
    let proven = assert_proven(&pair.old, &pair.new);
    assert!(count(&proven, Check::StaticRelocations) > 50, "{:?}", proven.checks);
    let sections = sections(&pair.new);
    for &(name, field) in fields {
        let table = section(&sections, name);
        for entry in (table.offset..table.offset + table.size).step_by(24) {
            let mut new = pair.new.clone();
            add(&mut new, entry + field, amount);
            let report = report(&pair.old, &new);
            let is_seen = report.differences.iter().any(|found| found.check == Check::StaticRelocations);
            assert!(is_seen, "{name}, entry at {entry:#x}, field {field}: {:#?}", report.differences);
        }
    }
}

/// Damages the new image of a pair in each way; `filler` is a byte that is padding by itself.
pub(crate) fn assert_damages_are_seen(pair: &Relinked, filler: u8) {
    let sections = sections(&pair.new);
    assert_proven(&pair.old, &pair.new);
    for damage in DAMAGES {
        let mut new = pair.new.clone();
        (damage.apply)(&mut new, &sections, pair, filler);
        assert_ne!(new, pair.new, "{} did nothing", damage.name);
        let report = report(&pair.old, &new);
        let checks: Vec<Check> = report.differences.iter().map(|difference| difference.check).collect();
        // Symbols decide whether startup code is a function.
        let is_start_code = damage.check == Check::Gaps && checks.contains(&Check::Functions);
        let is_seen = is_start_code || checks.contains(&damage.check);
        assert!(is_seen, "{}: {:#?}", damage.name, report.differences);
    }
}

/// Flips one bit of each byte of the file in turn: only changes of identities and filler may be accepted.
#[test]
fn no_flipped_bit_goes_unnoticed() {
    assert_flips_are_noticed(&Relinked::build(&["-Wl,-z,max-page-size=4096", "-Wl,-z,noseparate-code"]));
}

/// Flips one bit of each byte of the new image.
pub(crate) fn assert_flips_are_noticed(pair: &Relinked) {
    assert_proven(&pair.old, &pair.new);
    let sections = sections(&pair.new);
    let build_id = section(&sections, ".note.gnu.build-id");
    let identity = build_id.offset + 16..build_id.offset + build_id.size;
    let mut new = pair.new.clone();
    // Filler between functions may be any filler; startup code between functions may not.
    let moves = recover_moves(&pair.old, &pair.new).expect("the pair corresponds");
    let text = section(&sections, ".text");
    let is_filler = |at: usize| {
        let address = text.address.wrapping_add((at as u64).wrapping_sub(text.offset as u64));
        (text.offset..text.offset + text.size).contains(&at)
            && moves.containing_new(NewAddress(address)).is_none()
            && !pair.start_code.contains(&address)
    };
    let mut unnoticed = Vec::new();
    for at in 0..new.len() {
        let bit = 1u8 << (at % 8);
        new[at] ^= bit;
        if report(&pair.old, &new).is_proven() && !identity.contains(&at) && !is_filler(at) {
            unnoticed.push(at);
        }
        new[at] ^= bit;
    }
    assert!(unnoticed.is_empty(), "flips at {unnoticed:x?} were not noticed");
}

/// Input for bytes that the verifier must not trust: any value leads to a report or an error, never a panic or a hang.
#[test]
fn hostile_images_end_in_a_report_or_an_error() {
    let pair = Relinked::build(&[]);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut noticed = 0;
    for _ in 0..3000 {
        let mut image = pair.new.clone();
        for _ in 0..1 + random() % 8 {
            let at = random() as usize % image.len();
            let value = [0, 0xff, 0x7f, 0x80, random() as u8][random() as usize % 5];
            let end = (at + 1 + random() as usize % 8).min(image.len());
            image[at..end].fill(value);
        }
        noticed += usize::from(!report(&pair.old, &image).is_proven());
        // It may be refused as the old image; it must never be proven a relocated form of the other.
        let _ = verify(&image, &pair.new, VerifyOptions::default());
        let _ = verify(&image, &image, VerifyOptions::default());
    }
    assert!(noticed > 2500, "only {noticed} of 3000 damaged images were noticed");
}
