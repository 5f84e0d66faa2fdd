//! Link maps that the linkers have just written, compared with the images that they describe.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use end_to_end::namesakes::{LINKERS, Namesakes, OUTPUT};
use end_to_end::process::shell;
use reorder_image::elf::file::ElfFile;
use reorder_trace::link_map::{LinkMap, PlacedSection};

const LIMIT: Duration = Duration::from_secs(120);

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Name, address and size of each symbol of code, by `nm`.
fn functions(image: &Path) -> Vec<(String, u64, u64)> {
    let listing = shell(&format!("nm -S --defined-only '{}'", image.display()), LIMIT).unwrap();
    listing
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let &[address, size, kind, name] = words.as_slice() else { return None };
            let number = |digits| u64::from_str_radix(digits, 16).unwrap();
            "TtWw".contains(kind).then(|| (name.to_owned(), number(address), number(size)))
        })
        .collect()
}

/// Every section is within its output section, none overlap, and every function is in the section with its name.
fn assert_describes(map: &LinkMap<'_>, image: &Path) -> BTreeMap<(String, String), u64> {
    let bytes = std::fs::read(image).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let loaded =
        |section: &&PlacedSection<'_>| file.section(section.output).is_some_and(|output| output.is_loaded());
    for section in map.sections.iter().filter(loaded) {
        let output = file.section(section.output).unwrap();
        let inside = output.address <= section.address && section.end().0 <= output.address.0 + output.size;
        assert!(inside, "{} of {}", text(section.name), text(section.object));
    }
    let code: Vec<_> = map.sections.iter().filter(|section| section.output == b".text").collect();
    assert!(code.windows(2).all(|pair| pair[0].end() <= pair[1].address), "sections overlap");
    let mut found = 0;
    for (name, address, size) in functions(image) {
        let Some(section) =
            code.iter().find(|section| (section.address.0..section.end().0).contains(&address))
        else {
            continue;
        };
        if section.name.len() > b".text".len() && size > 0 {
            // Folded functions have the section of another.
            let is_twin = name.starts_with("twin_");
            assert!(is_twin || section.name.ends_with(name.as_bytes()), "{name} in {}", text(section.name));
            assert_eq!((section.address.0, section.size), (address, size), "{name}");
            found += 1;
        }
    }
    assert!(found >= 8, "only {found} functions were compared");
    code.iter()
        .filter(|section| section.name.starts_with(b".text."))
        .map(|section| ((text(section.object), text(section.name)), section.size))
        .collect()
}

#[test]
fn each_linker_s_map_says_where_every_function_is() {
    let program = Namesakes::of_gcc().unwrap();
    let mut all = Vec::new();
    for (linker, _) in LINKERS {
        let image = program.link(linker, linker, "-Wl,--gc-sections").unwrap();
        assert_eq!(program.run(&format!("./{linker}")).unwrap(), OUTPUT);
        let bytes = program.map(linker).unwrap();
        let map = LinkMap::parse(&bytes).unwrap();
        assert!(!map.is_apple());
        let sections = assert_describes(&map, &image);
        let names = |object: &str| -> Vec<&str> {
            sections.keys().filter(|(other, _)| other == object).map(|(_, name)| name.as_str()).collect()
        };
        assert_eq!(names("dir/libpair.a(second.o)"), [".text.helper", ".text.second"], "{linker}");
        assert!(names("dir/main.o").contains(&".text.a_function_whose_name_takes_two_lines_of_the_map"));
        assert!(!sections.keys().any(|(_, name)| name == ".text.unused"), "{linker}: it was discarded");
        let totals = sections.keys().filter(|(_, name)| name.contains("total")).count();
        assert_eq!(totals, 1, "{linker}: one of two equal templates is kept");
        let told = map.sections.iter().filter(|section| section.alignment.is_some()).count();
        let tells = matches!(linker, "lld" | "mold");
        assert_eq!(told, if tells { map.sections.len() } else { 0 }, "{linker}");
        all.push(sections);
    }
    // The same objects for every linker.
    assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:#?}");
}

#[test]
fn folded_sections_are_listed_once() {
    let program = Namesakes::of_gcc().unwrap();
    for linker in ["lld", "gold"] {
        let image = program.link(linker, linker, "-Wl,--icf=all").unwrap();
        assert_eq!(program.run(&format!("./{linker}")).unwrap(), OUTPUT);
        let bytes = program.map(linker).unwrap();
        let sections = assert_describes(&LinkMap::parse(&bytes).unwrap(), &image);
        let twins = sections.keys().filter(|(_, name)| name.starts_with(".text.twin_")).count();
        let all = functions(&image);
        let addresses: BTreeSet<u64> = all
            .iter()
            .filter(|(name, ..)| name.starts_with("twin_"))
            .map(|(_, address, _)| *address)
            .collect();
        assert_eq!(twins, addresses.len(), "{linker}");
        assert!(twins < 3, "{linker} folds equal functions, gold at least those of one object");
    }
}

#[test]
fn objects_of_link_time_optimisation_are_read() {
    let gcc = Namesakes::compile(
        "gcc -O1 -ffunction-sections -fno-ipa-icf -flto",
        "g++ -O1 -ffunction-sections -fno-ipa-icf -flto",
    )
    .unwrap();
    for linker in ["bfd", "gold"] {
        let image = gcc.link(linker, linker, "-O1 -flto -ffunction-sections -fno-ipa-icf").unwrap();
        assert_eq!(gcc.run(&format!("./{linker}")).unwrap(), OUTPUT);
        let bytes = gcc.map(linker).unwrap();
        let sections = assert_describes(&LinkMap::parse(&bytes).unwrap(), &image);
        assert!(sections.keys().any(|(object, _)| object.ends_with(".ltrans0.ltrans.o")), "{sections:?}");
    }
    let clang = Namesakes::compile(
        "clang$LLVM -O1 -ffunction-sections -flto=thin",
        "clang++$LLVM -O1 -ffunction-sections -flto=thin",
    );
    let clang = clang.unwrap();
    clang.run("rm dir/libpair.a && llvm-ar$LLVM rcs dir/libpair.a first.o second.o").unwrap();
    let image = clang.link("lld", "thin", "-flto=thin").unwrap();
    assert_eq!(clang.run("./thin").unwrap(), OUTPUT);
    let bytes = clang.map("thin").unwrap();
    let sections = assert_describes(&LinkMap::parse(&bytes).unwrap(), &image);
    let helpers = sections.keys().filter(|(_, name)| name.starts_with(".text.helper")).count();
    assert_eq!(helpers, 3, "{sections:#?}");
}

#[test]
fn apple_s_map_names_symbols_and_members() {
    let directory = tempfile::tempdir().unwrap();
    let sources = [
        (
            "main.c",
            "int other(int); __attribute__((noinline)) static int helper(int n) { return n + 3; }\n\
                    int main(int n, char **words) { return other(n) + helper(n) + !words; }\n",
        ),
        (
            "second.c",
            "int value = 5; __attribute__((noinline)) static int helper(int n) { return n * value; }\n\
                      int other(int n) { return helper(n) + 1; } int dead(int n) { return n * 9; }\n",
        ),
    ];
    for (name, source) in sources {
        std::fs::write(directory.path().join(name), source).unwrap();
    }
    for architecture in ["arm64", "x86_64"] {
        let line = format!(
            "cd '{}' && for unit in main second; do clang$LLVM --target={architecture}-apple-macos12 -O1 -c $unit.c -o \
             $unit.o; done && rm -f libpair.a && llvm-ar$LLVM rcs libpair.a second.o && ld64.lld$LLVM -arch {architecture} \
             -platform_version macos 12 12 -undefined dynamic_lookup -dead_strip main.o libpair.a -o image -map map",
            directory.path().display()
        );
        shell(&line, LIMIT).unwrap();
        let bytes = std::fs::read(directory.path().join("map")).unwrap();
        let map = LinkMap::parse(&bytes).unwrap();
        assert!(map.is_apple());
        let code: Vec<_> = map
            .sections
            .iter()
            .filter(|section| section.output == b"__TEXT,__text")
            .map(|section| (text(section.object), text(section.name)))
            .collect();
        let expected = [
            ("main.o", "_main"),
            ("main.o", "_helper"),
            ("libpair.a(second.o)", "_other"),
            ("libpair.a(second.o)", "_helper"),
        ];
        assert_eq!(code, expected.map(|(object, name)| (object.to_owned(), name.to_owned())));
        let listing = shell(&format!("llvm-nm$LLVM '{}/image'", directory.path().display()), LIMIT).unwrap();
        for section in &map.sections {
            let line = format!("{:016x}", section.address.0);
            let known = listing.contains(&line) || section.object == b"linker synthesized";
            assert!(known, "{} at {line}", text(section.name));
        }
    }
}
