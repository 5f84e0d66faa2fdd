//! Recovering moves from pairs of images: an image and itself, and two links of one program that differ only in
//! the order of its functions, with the linker as oracle.

use crate::relinked::Relinked;
use reorder_base::address::Address;
use reorder_verify::recover_moves;

#[test]
fn an_image_and_itself_have_functions_and_no_moves() {
    let bytes = std::fs::read("/bin/bash").expect("bash is installed");
    let moves = recover_moves(&bytes, &bytes).expect("bash can be read");
    assert!(moves.len() > 1000, "bash has thousands of functions, found {}", moves.len());
    assert_eq!(moves.moved(), 0);
}

#[test]
fn a_relinked_program_shows_where_each_function_went() {
    let pair = Relinked::build(&[]);
    let moves = recover_moves(&pair.old, &pair.new).expect("the pair corresponds");
    assert!(moves.moved() >= 5, "only {} functions moved", moves.moved());
    for (name, old, new) in &pair.symbols {
        assert_eq!(moves.map(Address(*old)).0, *new, "{name}");
        assert_eq!(moves.unmap(reorder_base::address::NewAddress(*new)).0, *old, "{name}");
    }
    for pair in moves.as_slice().windows(2) {
        assert!(pair[0].old_end() <= pair[1].old_start);
    }
}

#[test]
fn truncated_images_are_errors_and_never_panic() {
    let pair = Relinked::build(&[]);
    for length in (0..pair.new.len()).step_by(97) {
        let truncated = &pair.new[..length];
        // The section headers are at the end, so every truncation loses some of them.
        assert!(recover_moves(&pair.old, truncated).is_err(), "{length}");
        assert!(recover_moves(truncated, &pair.old).is_err(), "{length}");
    }
}
