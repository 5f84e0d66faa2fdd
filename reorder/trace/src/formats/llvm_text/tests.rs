//! Damaged profiles never panic; numbers have C's prefixes; what looks like another text is another text.

use std::path::Path;

use proptest::prelude::*;

use super::lines::number;
use super::{accepts, accepts_without_header};
use crate::formats::damage;

proptest! {
    #[test]
    fn damaged_profiles_never_panic(bytes in damage::damaged(damage::sample("llvm_merged/ab.proftext"))) {
        damage::check("LLVM text profile", &bytes, Path::new("x.proftext"))?;
    }

    #[test]
    fn odd_profiles_never_panic(bytes in damage::damaged(damage::sample("llvm_merged/odd-syntax.proftext"))) {
        damage::check("LLVM text profile", &bytes, Path::new("x.proftext"))?;
    }
}

#[test]
fn numbers_have_c_prefixes() {
    let numbers = [b"16".as_slice(), b"0x10", b"0b10000", b"0o20", b"020"];
    assert!(numbers.into_iter().all(|text| number(text) == Some(16)));
    assert_eq!(number(b"0"), Some(0));
    for text in [b"".as_slice(), b"+1", b"-1", b"0x", b"0x+1", b"08", b"1 2", b"18446744073709551616"] {
        assert_eq!(number(text), None, "{}", text.escape_ascii());
    }
}

#[test]
fn other_texts_are_not_accepted() {
    assert!(accepts(b"# comment\n\n:IR\n"));
    assert!(!accepts(b":unknown\n"));
    assert!(accepts_without_header(b"main\n0x10\n1\n5\n"));
    assert!(!accepts_without_header(b"main\ninit\n1\n5\n"));
    assert!(!accepts_without_header(b"1040\n1060\n1080\n10a0\n"));
    assert!(!accepts_without_header(b"main:184019:0\n 4: 534\n"));
}
