//! Damaged images. Whole ones are linked and read in `tests/tests/macho/order_files.rs`.

use proptest::prelude::*;

use super::file::MachOFile;
use super::{MachOImage, is_macho};
use reorder_base::error::ErrorKind;

/// A Mach-O file among the samples of profiles: a dSYM companion.
fn sample() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/profiles/llvm_raw/macho-dsym-dwarf");
    std::fs::read(path).expect("the sample is there")
}

#[test]
fn other_files_are_refused_with_a_reason() {
    assert!(!is_macho(b"\x7fELF") && !is_macho(b"") && !is_macho(b"\xca\xfe\xba\xbe\0\0\0\x41"));
    assert!(is_macho(b"\xca\xfe\xba\xbe\0\0\0\x02") && is_macho(&sample()));
    for bytes in [&b""[..], b"\x7fELF", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe\0\0\0\x02"] {
        assert!(MachOImage::parse(bytes, None).is_err());
    }
    assert!(MachOImage::parse(&sample(), Some("ppc")).is_err());
}

#[test]
fn images_that_cannot_be_relocated_have_functions() {
    let bytes = sample();
    let image = MachOImage::parse(&bytes, None).expect("the sample is whole");
    assert!(!image.names.functions().is_empty());
    let refused = image.checked().expect_err("debug information is not relocated");
    assert!(matches!(refused.kind, ErrorKind::Refused(_)), "{refused}");
    // As a library it is read further: its sections have no contents, though their addresses demand some.
    let mut library = sample();
    library[12] = 6;
    let image = MachOImage::parse(&library, None).expect("the kind does not matter for functions");
    let wrong = image.checked().expect_err("the contents are elsewhere");
    assert!(matches!(wrong.kind, ErrorKind::Malformed) && wrong.offset.is_some(), "{wrong}");
    let direct = MachOFile::parse(&library).expect_err("the contents are elsewhere");
    assert_eq!((direct.to_string(), direct.offset), (wrong.to_string(), wrong.offset));
}

proptest! {
    #[test]
    fn damage_is_an_error_or_survived(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        end in any::<prop::sample::Index>(),
        cut in any::<bool>(),
        universal in any::<bool>(),
    ) {
        let mut bytes = sample();
        if universal {
            let head = [0xcafe_babe, 1, 0x0100_000c, 0, 28, bytes.len() as u32, 0];
            bytes.splice(0..0, head.iter().flat_map(|word: &u32| word.to_be_bytes()));
        }
        for (place, byte) in edits {
            // Most of the fields that matter are at the beginning.
            let at = place.index(bytes.len().min(2048));
            bytes[at] = byte;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        if let Ok(image) = MachOImage::parse(&bytes, None) {
            let functions = image.names.functions();
            prop_assert!(functions.len() <= bytes.len());
            prop_assert!(functions.iter().all(|(_, function)| function.end > function.start));
        }
    }
}
