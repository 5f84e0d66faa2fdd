//! Excerpts of real maps, and arbitrary damage to them. Whole maps of real links are read in `tests/tests/linker/link_maps.rs`.

use proptest::prelude::*;

use super::{LinkMap, ObjectFile, PlacedSection};
use reorder_base::address::Address;

const LLD: &str = "             VMA              LMA     Size Align Out     In      Symbol
             2a8              2a8       1c     1 .interp
             2a8              2a8       1c     1         <internal>:(.interp)
            1da0             1da0      61f    16 .text
            1e89             1e89        5     1         dir/a.o:(.text.helper)
            1e89             1e89        5     1                 helper
            1e8e             1e8e        0     1         dir/a.o:(.text)
            1e90             1e90       98    16         lib x.a(l1.o):(.text.f(int))
            1f28             1f28        8     1         QUAD(0x5)
            1f30             1f30        0     1 . = ALIGN(8)
               0                0       42     1 .comment
               0                0       42     1         <internal>:(.comment)
";

const MOLD: &str = "               VMA       Size Align Out     In      Symbol
                 0         64     8 EHDR
            0x1dc0       1567    16 .text
            0x1ea9          5     1         dir/a.o:(.text.helper)
            0x1ea9          0     0                 helper
            0x1ed4        152    16         lib x.a(l1.o):(.text.f(int))
";

/// The first half as GNU ld writes it, with a heading in another language; gold's fillers at the end.
const GNU: &str = "
Verworfene Eingabesektionen

 .text.unused   0x0000000000000000        0x7 a.o

Name             Ursprung           Länge              Attribute
*default*        0x0000000000000000 0xffffffffffffffff

.interp         0x0000000000000318       0x1c
 *(.interp)

.text           0x00000000000010e0      0x61f load address 0x00000000000020e0
 *(.text .stub .text.* .gnu.linkonce.t.*)
 .text          0x00000000000010e0        0x0 a.o
 .text.helper   0x0000000000001e89        0x5 dir/a.o
                0x0000000000001e89                helper
 *fill*         0x0000000000001e8e        0x2 90
 .text.f(int)
                0x0000000000001e90       0x98 lib x.a(l1.o)
                0x0000000000001e90                f(int)
 QUAD           0x0000000000001f28        0x8 0x5
 ** fill        0x0000000000001f30        0x8

/DISCARD/
 .text.gone     0x0000000000001f30        0x8 a.o

.comment        0x0000000000000000       0x28
 .comment       0x0000000000000000       0x28 a.o
";

const APPLE: &str = "# Path: m
# Arch: arm64
# Object files:
[  0] linker synthesized
[  1] dir/a.o
[  2] libm.a(m2.o)
# Sections:
# Address\tSize    \tSegment\tSection
0x100000388\t0x00000060\t__TEXT\t__text
0x100004000\t0x00000004\t__MINE\t__data
# Symbols:
# Address\tSize    \tFile  Name
0x100000388\t0x00000030\t[  1] _main
0x1000003B8\t0x00000000\t[  1] _label
0x1000003B8\t0x00000008\t[  2] -[Foo bar:]
0x1000003E8\t0x00000008\t[  2] nowhere
0x100004000\t0x00000004\t[  9] _g_data
# Dead Stripped Symbols:
#        \tSize    \tFile  Name
<<dead>>\t0x00000008\t[  2] _dead
";

fn section(
    (address, size, alignment): (u64, u64, Option<u64>),
    output: &'static str,
    object: &'static str,
    name: &'static str,
) -> PlacedSection<'static> {
    let [output, object, name] = [output, object, name].map(str::as_bytes);
    PlacedSection { address: Address(address), size, alignment, output, object, name }
}

fn sections(map: &str) -> Vec<PlacedSection<'_>> {
    LinkMap::parse(map.as_bytes()).expect("a map").sections
}

#[test]
fn each_format_gives_its_nonempty_sections() {
    let expected = [
        section((0x2a8, 0x1c, Some(1)), ".interp", "<internal>", ".interp"),
        section((0x1e89, 5, Some(1)), ".text", "dir/a.o", ".text.helper"),
        section((0x1e90, 0x98, Some(16)), ".text", "lib x.a(l1.o)", ".text.f(int)"),
    ];
    assert_eq!(sections(LLD), expected);
    let mold = [
        section((0x1ea9, 5, Some(1)), ".text", "dir/a.o", ".text.helper"),
        section((0x1ed4, 152, Some(16)), ".text", "lib x.a(l1.o)", ".text.f(int)"),
    ];
    assert_eq!(sections(MOLD), mold);
    let gnu = [
        section((0x1e89, 5, None), ".text", "dir/a.o", ".text.helper"),
        section((0x1e90, 0x98, None), ".text", "lib x.a(l1.o)", ".text.f(int)"),
    ];
    assert_eq!(sections(GNU), gnu);
    let apple = [
        section((0x1_0000_0388, 0x30, None), "__TEXT,__text", "dir/a.o", "_main"),
        section((0x1_0000_03b8, 8, None), "__TEXT,__text", "libm.a(m2.o)", "-[Foo bar:]"),
        section((0x1_0000_4000, 4, None), "__MINE\t__data", "", "_g_data"),
    ];
    assert_eq!(sections(APPLE), apple);
    assert!([LLD, MOLD, GNU].iter().all(|map| !LinkMap::parse(map.as_bytes()).expect("a map").is_apple()));
    assert!(LinkMap::parse(APPLE.as_bytes()).expect("a map").is_apple());
}

#[test]
fn lines_may_end_as_on_windows() {
    for map in [LLD, MOLD, GNU, APPLE] {
        assert_eq!(sections(&map.replace('\n', "\r\n")), sections(map));
    }
}

#[test]
fn what_is_no_map_is_an_error_with_its_place() {
    for text in ["", "main\nother\n", "VMA LMA\n", "# Path: x\n# Arch: arm64\n"] {
        let error = LinkMap::parse(text.as_bytes()).expect_err("no map");
        assert!(error.offset == Some(0) && error.hint.is_some(), "{error}");
    }
    let overflow = LLD.replace("1e90             1e90", "ffffffffffffff90 ffffffffffffff90");
    let error = LinkMap::parse(overflow.as_bytes()).expect_err("past the end");
    assert_eq!(error.offset, overflow.find("            ffffffffffffff90").map(|at| at as u64));
}

#[test]
fn files_are_named_without_their_directories() {
    let file = |object| ObjectFile::of(str::as_bytes(object)).leaf().to_owned_parts();
    assert_eq!(file("a/b.o"), (None, "b.o".into()));
    assert_eq!(file("x/lib.a(b.o)"), (Some("lib.a".into()), "b.o".into()));
    assert_eq!(file("x/lib.a(dir/b(1).o)"), (Some("lib.a".into()), "b(1).o".into()));
    assert_eq!(file("(b.o)"), (None, "(b.o)".into()));
    assert_eq!(file(""), (None, "".into()));
}

impl ObjectFile<'_> {
    fn to_owned_parts(self) -> (Option<String>, String) {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (self.archive.map(text), text(self.name))
    }
}

proptest! {
    #[test]
    fn damage_is_an_error_or_survived(
        which in 0usize..4,
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0u8..3), 0..12),
    ) {
        let mut bytes = [LLD, MOLD, GNU, APPLE][which].as_bytes().to_vec();
        for (place, byte, how) in edits {
            let at = place.index(bytes.len().max(1));
            match how {
                _ if bytes.is_empty() => bytes.push(byte),
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => bytes.truncate(at),
            }
        }
        match LinkMap::parse(&bytes) {
            Ok(map) => {
                prop_assert!(map.sections.len() <= bytes.len());
                prop_assert!(map.sections.iter().all(|section| section.size > 0 && section.end() > section.address));
            }
            Err(error) => prop_assert!(error.offset.is_some_and(|offset| offset <= bytes.len() as u64)),
        }
    }
}
