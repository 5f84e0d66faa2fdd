//! The linker as an oracle: the result of `reorder apply` on a finished image must be what the linker makes when it links
//! the same objects in the same order.
//!
//! A link with a map gives names; a shuffle of them is an order file; a second link gives the layout that the linker makes
//! of it. Its map, translated to addresses of the first link, is the order by which the first image is relocated. Names are
//! not enough: several objects may have local functions of one name, and the linker decides where these go.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::macho_tools::{run, script};
use crate::process::shell;
use crate::workspace;

const LIMIT: Duration = Duration::from_secs(120);

/// One linked image that can be linked again.
#[derive(Clone, Debug)]
pub struct Linked {
    /// Where links and orders are written.
    pub directory: PathBuf,
    /// `arm64` or `x86_64`.
    pub architecture: &'static str,
    /// The linker and all its arguments except the output, the map and the order.
    pub line: String,
}

/// A symbol of `__text` in a map of ld64.lld.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Symbol {
    file: String,
    name: String,
}

impl Linked {
    /// The first link; gives the image.
    ///
    /// # Panics
    /// When the linker fails.
    pub fn image(&self) -> PathBuf {
        self.link("first", "");
        self.directory.join("first")
    }

    /// Links, shuffles by `seed`, links again, relocates and compares.
    ///
    /// # Panics
    /// With the differences.
    pub fn agrees(&self, seed: u64) {
        let first = self.directory.join("first");
        let (second, relocated) = (self.file(seed, "second"), self.file(seed, "relocated"));
        let order = self.shuffled_link(seed);
        let outcome = run(workspace::reorder()
            .arg("apply")
            .arg(&first)
            .arg("--order")
            .arg(&order)
            .arg("-o")
            .arg(&relocated));
        assert!(outcome.success(), "seed {seed}: {outcome}");
        let outcome = run(script("checker/same.py").args([&second, &relocated]).arg(self.architecture));
        assert!(outcome.success(), "seed {seed} in {}:\n{outcome}", self.directory.display());
        for path in [&second, &relocated, &order] {
            std::fs::remove_file(path).expect("what was written can be removed");
        }
    }

    /// Links in an order that `seed` decides; gives a file of that order as addresses of the first link.
    ///
    /// # Panics
    /// When the linker fails.
    pub fn shuffled_link(&self, seed: u64) -> PathBuf {
        let first = symbols(&self.directory.join("first.map"));
        let mut names: Vec<&String> = first.iter().map(|(_, symbol)| &symbol.name).collect();
        names.sort();
        names.dedup();
        shuffle(&mut names, seed);
        let list = self.file(seed, "names");
        let text: String = names.iter().fold(String::new(), |text, name| text + name + "\n");
        std::fs::write(&list, text).expect("the order is written");

        self.link(&format!("second-{seed}"), &format!("-order_file '{}'", list.display()));
        let map = self.file(seed, "second").with_extension("map");
        let second = symbols(&map);
        let places: HashMap<&Symbol, u64> =
            first.iter().map(|(address, symbol)| (symbol, *address)).collect();
        let mut text = String::new();
        let mut listed = HashSet::new();
        for place in second.iter().map(|(_, symbol)| places[symbol]) {
            if listed.insert(place) {
                let _ = writeln!(text, "{place:#x}"); // writing to a string cannot fail
            }
        }
        let order = self.file(seed, "order");
        std::fs::write(&order, text).expect("the order is written");
        for path in [&list, &map] {
            std::fs::remove_file(path).expect("what was written can be removed");
        }
        order
    }

    /// The image of the second link for a seed.
    pub fn second(&self, seed: u64) -> PathBuf {
        self.file(seed, "second")
    }

    fn link(&self, output: &str, flags: &str) {
        let line = format!(
            "cd '{}' && {} {flags} -o {output} -map {output}.map",
            self.directory.display(),
            self.line
        );
        shell(&line, LIMIT).unwrap_or_else(|error| panic!("{error}"));
    }

    fn file(&self, seed: u64, kind: &str) -> PathBuf {
        self.directory.join(format!("{kind}-{seed}"))
    }
}

/// Symbols of `__TEXT,__text` in a map, by address. Folded functions share an address.
fn symbols(map: &Path) -> Vec<(u64, Symbol)> {
    let text = String::from_utf8_lossy(&std::fs::read(map).expect("the linker wrote a map")).into_owned();
    let number = |field: &str| u64::from_str_radix(field.trim_start_matches("0x"), 16).ok();
    let mut range = 0..0;
    let mut found = Vec::new();
    let mut in_symbols = false;
    for line in text.lines() {
        in_symbols |= line == "# Symbols:";
        let fields: Vec<&str> = line.splitn(3, '\t').collect();
        let [address, size, rest] = fields[..] else { continue };
        let (Some(address), Some(size)) = (number(address), number(size)) else { continue };
        if !in_symbols && rest == "__TEXT\t__text" {
            range = address..address + size;
        } else if in_symbols && range.contains(&address) {
            let Some((file, name)) = rest.split_once("] ") else { continue };
            found.push((address, Symbol { file: file.to_owned(), name: name.to_owned() }));
        }
    }
    found.sort_by_key(|(address, _)| *address);
    found
}

/// Fisher and Yates with a linear congruential generator (Knuth's MMIX): the same order on every system.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(1);
    for upper in (1..items.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bound = u64::try_from(upper + 1).expect("a length fits 64 bits");
        let chosen = usize::try_from((state >> 33) % bound).expect("an index below the length fits");
        items.swap(upper, chosen);
    }
}
