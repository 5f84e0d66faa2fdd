//! Any bytes as a wheel: what can be read can be written again, or is an error; what is written is a wheel.

use std::collections::BTreeMap;

use reorder::wheel::Wheel;

pub(super) fn check(bytes: &[u8]) {
    let Ok(wheel) = Wheel::open(bytes) else { return };
    for name in wheel.names() {
        if name.ends_with("/RECORD") {
            continue;
        }
        let Ok(contents) = wheel.read(name, None) else { continue };
        let replaced = BTreeMap::from([(name.to_owned(), [&contents[..], b"more"].concat())]);
        if let Ok(new) = wheel.replace(&replaced) {
            let new = Wheel::open(&new).expect("a written wheel is sound");
            assert_eq!(&*new.read(name, None).expect("its files are sound"), &replaced[name][..]);
        }
    }
}
