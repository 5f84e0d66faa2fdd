//! Each dialect of order files gives the requested order in the linked image, tested with the linkers themselves.

use std::path::Path;
use std::time::Duration;

use end_to_end::namesakes::{Namesakes, OUTPUT};
use end_to_end::process;
use end_to_end::workspace;
use reorder_image::elf::file::ElfFile;
use reorder_image::elf::functions::ElfFunctions;
use reorder_image::functions::FunctionIndex;
use reorder_layout::Layout;
use reorder_layout::order_file::{Anchor, bfd_script, gold_sections, lld_script, ordered_sections};
use reorder_trace::link_map::{LinkMap, SectionIndex};

/// Object and name.
type Identity = (String, String);

fn identity(map: &LinkMap<'_>, section: SectionIndex) -> Identity {
    let section = map.get(section);
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    // Objects of link-time optimisation get a new name each time.
    let object = text(section.object);
    let lasting = object.rsplit_once(".ltrans").map(|(_, rest)| format!(".ltrans{rest}"));
    (lasting.unwrap_or(object), text(section.name))
}

/// The contents of an output section, in order.
fn inputs_of(map: &[u8], output: &str) -> Vec<Identity> {
    let map = LinkMap::parse(map).unwrap();
    let all = (0..map.sections.len() as u32).map(SectionIndex);
    all.filter(|&index| map.get(index).output == output.as_bytes())
        .map(|index| identity(&map, index))
        .collect()
}

/// The contents of `.text`, in order.
fn text_sections(map: &[u8]) -> Vec<Identity> {
    inputs_of(map, ".text")
}

/// Links by `order`, checks that the program behaves the same, and gives the sections at the positions of the listed ones.
fn ordered(program: &Namesakes, linker: &str, flag: &str, order: &str) -> Vec<Identity> {
    std::fs::write(program.path("order"), order).unwrap();
    program.link(linker, "ordered", flag).unwrap();
    assert_eq!(program.run("./ordered").unwrap(), OUTPUT);
    let output = if linker == "bfd" { ".text.ordered" } else { ".text" };
    inputs_of(&program.map("ordered").unwrap(), output)
}

/// The program's own sections in an order that no linker would choose, from a layout of the functions of the image.
fn reversed(image: &Path, map: &LinkMap<'_>) -> Vec<SectionIndex> {
    let bytes = std::fs::read(image).unwrap();
    let file = ElfFile::parse(&bytes).unwrap();
    let functions = ElfFunctions::collect(&file).unwrap().table;
    let mut listed: Vec<FunctionIndex> = functions.iter().map(|(index, _)| index).collect();
    listed.reverse();
    let (even, odd): (Vec<_>, Vec<_>) = listed.into_iter().partition(|index| index.0 % 2 == 0);
    let layout = Layout::of_listed(&[even, odd].concat(), functions.len()).unwrap();
    let sections = ordered_sections(&functions, &layout, map);
    let is_own = |index: &SectionIndex| {
        let section = map.get(*index);
        section.output == b".text"
            && !section.object.starts_with(b"/usr")
            && !section.object.starts_with(b"/lib")
    };
    sections.into_iter().filter(is_own).collect()
}

/// Names, kinds and flags of the output sections in their order.
fn outputs(program: &Namesakes, name: &str) -> Vec<String> {
    let listing = program.run(&format!("readelf -SW {name}")).unwrap();
    let rows =
        listing.lines().filter_map(|line| line.split_once("] ")).filter(|(left, _)| left.contains('['));
    rows.map(|(_, row)| {
        let words: Vec<&str> = row.split_whitespace().collect();
        // Address, offset and size may change.
        words
            .iter()
            .enumerate()
            .filter(|(at, _)| ![2, 3, 4].contains(at))
            .map(|(_, word)| format!("{word} "))
            .collect()
    })
    .collect()
}

#[test]
fn lld_s_script_is_followed_and_leaves_all_other_sections() {
    let program = Namesakes::of_gcc().unwrap();
    for flags in
        ["", "-Wl,--gc-sections", "-no-pie", "-static", "-static-pie", "-Wl,-z,separate-code -Wl,--icf=all"]
    {
        let image = program.link("lld", "plain", flags).unwrap();
        let bytes = program.map("plain").unwrap();
        let map = LinkMap::parse(&bytes).unwrap();
        let sections = reversed(&image, &map);
        assert!(sections.len() >= 11, "{}", sections.len());
        let script = lld_script(&map, &sections, Anchor::of(&map).unwrap());
        std::fs::write(program.path("script"), &script).unwrap();
        program.link("lld", "ordered", &format!("{flags} -Wl,-T,script")).unwrap();
        assert_eq!(program.run("./ordered").unwrap(), OUTPUT);
        let wanted: Vec<_> = sections.iter().map(|&section| identity(&map, section)).collect();
        let mut before = text_sections(&bytes);
        let mut got = text_sections(&program.map("ordered").unwrap());
        assert_eq!(got[..wanted.len()], wanted, "{flags}: {script}");
        let helpers: Vec<_> = wanted.iter().filter(|(_, name)| name == ".text.helper").collect();
        assert_eq!(helpers.len(), 3, "{wanted:?}");
        before.sort();
        got.sort();
        assert_eq!(got, before, "{flags}: nothing is lost");
        assert_eq!(outputs(&program, "ordered"), outputs(&program, "plain"), "{flags}");
    }
}

#[test]
fn gnu_ld_s_script_is_followed_and_leaves_all_other_sections() {
    let program = Namesakes::of_gcc().unwrap();
    for flags in ["", "-Wl,--gc-sections", "-no-pie", "-static", "-static-pie"] {
        let image = program.link("bfd", "plain", flags).unwrap();
        let bytes = program.map("plain").unwrap();
        let map = LinkMap::parse(&bytes).unwrap();
        let sections = reversed(&image, &map);
        let default = program
            .run(&format!("g++ -fuse-ld=bfd dir/main.o plus.o dir/libpair.a {flags} -Wl,--verbose -o x"));
        let script = bfd_script(&map, &sections, &default.unwrap()).unwrap();
        std::fs::write(program.path("script"), &script).unwrap();
        program.link("bfd", "ordered", &format!("{flags} -Wl,-T,script")).unwrap();
        assert_eq!(program.run("./ordered").unwrap(), OUTPUT);
        let wanted: Vec<_> = sections.iter().map(|&section| identity(&map, section)).collect();
        let got = text_sections(&program.map("ordered").unwrap());
        assert_eq!(got[..wanted.len()], wanted, "{flags}: {script}");
        assert_eq!(outputs(&program, "ordered"), outputs(&program, "plain"), "{flags}");
    }
}

#[test]
fn temporary_objects_are_found_again() {
    let flags = "-O1 -ffunction-sections -fno-ipa-icf -flto -flto-partition=1to1";
    let program = Namesakes::compile(&format!("gcc {flags}"), &format!("g++ {flags}")).unwrap();
    let image = program.link("bfd", "plain", flags).unwrap();
    let bytes = program.map("plain").unwrap();
    let map = LinkMap::parse(&bytes).unwrap();
    let own = |index: &SectionIndex| String::from_utf8_lossy(map.get(*index).object).contains(".ltrans");
    let sections: Vec<_> = reversed(&image, &map).into_iter().filter(own).collect();
    let default = program.run("g++ -fuse-ld=bfd plus.o -shared -Wl,--verbose -o x").unwrap();
    let script = bfd_script(&map, &sections, &default).unwrap();
    std::fs::write(program.path("script"), &script).unwrap();
    program.link("bfd", "ordered", &format!("{flags} -Wl,-T,script")).unwrap();
    assert_eq!(program.run("./ordered").unwrap(), OUTPUT);
    let wanted: Vec<_> = sections.iter().map(|&section| identity(&map, section)).collect();
    assert!(wanted.len() >= 8, "{wanted:?}");
    assert_eq!(text_sections(&program.map("ordered").unwrap())[..wanted.len()], wanted, "{script}");
}

#[test]
fn gold_follows_names() {
    let program = Namesakes::of_gcc().unwrap();
    let image = program.link("gold", "plain", "").unwrap();
    let bytes = program.map("plain").unwrap();
    let map = LinkMap::parse(&bytes).unwrap();
    let named = |index: &SectionIndex| map.get(*index).name.starts_with(b".text.");
    let sections: Vec<_> = reversed(&image, &map).into_iter().filter(named).collect();
    std::fs::write(program.path("order"), gold_sections(&map, &sections)).unwrap();
    program.link("gold", "ordered", "-Wl,--section-ordering-file,order").unwrap();
    assert_eq!(program.run("./ordered").unwrap(), OUTPUT);
    let mut wanted: Vec<_> = sections.iter().map(|&section| identity(&map, section).1).collect();
    let mut seen = std::collections::BTreeSet::new();
    wanted.retain(|name| seen.insert(name.clone()));
    let got = text_sections(&program.map("ordered").unwrap());
    let mut names: Vec<_> = got[got.len() - sections.len()..].iter().map(|(_, name)| name.clone()).collect();
    // Namesakes are adjacent where the first of them is listed.
    names.dedup();
    assert_eq!(names, wanted);
    assert_eq!(reorder_layout::order_file::gold::ambiguous(&map, &sections).len(), 3, "three helpers");
}

/// Runs `reorder order` on a program of [`Namesakes`]; gives the order and the messages.
fn order(program: &Namesakes, image: &str, list: &str, flags: &[&str]) -> (String, String) {
    std::fs::write(program.path("list"), list).unwrap();
    let mut command = workspace::reorder();
    command.current_dir(program.directory()).args(["order", image, "--strategy", "first-seen", "-t", "list"]);
    let outcome = process::run(command.args(flags), Duration::from_secs(120)).unwrap();
    assert!(outcome.success(), "{outcome}");
    (outcome.stdout_text(), outcome.stderr_text())
}

const LIST: &str = "second\nmain\nsecond.c:helper\nchilly\nfirst\nmain.c:helper\nplus\n";

/// `LIST` as sections.
const LISTED: [&str; 7] = [
    ".text.second",
    ".text.main",
    ".text.helper",
    ".text.chilly",
    ".text.first",
    ".text.helper",
    ".text.plus",
];

fn names(sections: &[Identity]) -> Vec<&str> {
    sections.iter().map(|(_, name)| name.as_str()).collect()
}

#[test]
fn hand_offs_with_a_link_map_are_followed() {
    let program = Namesakes::of_gcc().unwrap();
    for (linker, flag) in
        [("lld", "-Wl,-T,order"), ("bfd", "-Wl,-T,order"), ("gold", "-Wl,--section-ordering-file,order")]
    {
        program.link(linker, "plain", "").unwrap();
        let (order, said) = order(
            &program,
            "plain",
            LIST,
            &["--linker", linker, "--link-map", "plain.map", "--memory", "16k"],
        );
        for part in
            ["written by reorder", "build-id ", "strategy first-seen seed 0", "memory 16k", "resolved 7 of 7"]
        {
            assert!(order.contains(part), "{part}: {order}");
        }
        assert_eq!(said.contains("not unique"), linker == "gold", "{said}");
        let got = ordered(&program, linker, flag, &order);
        match linker {
            // All three helpers, at the position of the first.
            "gold" => {
                let wanted = [
                    ".text.second",
                    ".text.main",
                    ".text.helper",
                    ".text.helper",
                    ".text.helper",
                    ".text.chilly",
                    ".text.first",
                    ".text.plus",
                ];
                let tail: Vec<_> = names(&got[got.len() - 8..]).into_iter().map(base).collect();
                assert_eq!(tail, wanted, "{order}");
            }
            _ => {
                assert_eq!(names(&got[..7]).into_iter().map(base).collect::<Vec<_>>(), LISTED, "{order}");
                assert!(got[2].0.contains("second.o") && got[5].0.contains("main.o"), "{got:?}");
            }
        }
    }
}

/// The name of a section tells how often the compiler expects its function to run.
fn base(name: &str) -> String {
    [".hot", ".unlikely", ".startup"].iter().fold(name.to_owned(), |name, word| name.replace(word, ""))
}

#[test]
fn hand_offs_without_a_map_name_compiler_sections() {
    for (c, plus) in [("gcc -O2", "g++ -O2"), ("clang$LLVM -O2", "clang++$LLVM -O2")] {
        let flags = "-ffunction-sections -fno-inline";
        let program = Namesakes::compile(&format!("{c} {flags}"), &format!("{plus} {flags}")).unwrap();
        let list = "second\nmain\nchilly\nfirst\nplus\n";
        let wanted = [".text.second", ".text.main", ".text.chilly", ".text.first", ".text.plus"];
        for (linker, flag) in [("bfd", "-Wl,-T,order"), ("gold", "-Wl,--section-ordering-file,order")] {
            program.link(linker, "plain", "").unwrap();
            let (order, _) = order(&program, "plain", list, &["--linker", linker]);
            let got = ordered(&program, linker, flag, &order);
            let listed = if linker == "bfd" { &got[..] } else { &got[got.len() - 5..] };
            assert_eq!(names(listed).into_iter().map(base).collect::<Vec<_>>(), wanted, "{linker}: {order}");
        }
    }
}

#[test]
fn other_link_maps_and_shared_sections_are_reported() {
    for (flags, is_told) in [("-O1 -fno-ipa-icf", true), ("-O1 -fno-ipa-icf -ffunction-sections", false)] {
        let program = Namesakes::compile(&format!("gcc {flags}"), &format!("g++ {flags}")).unwrap();
        program.link("lld", "plain", "").unwrap();
        let (_, said) = order(&program, "plain", LIST, &["--link-map", "plain.map"]);
        let tells = said.contains("-ffunction-sections") && said.contains(".text of dir/main.o has 8");
        assert_eq!(tells, is_told, "{flags}: {said}");
    }
    let program = Namesakes::of_gcc().unwrap();
    program.link("lld", "plain", "").unwrap();
    std::fs::write(program.path("list"), "main\n").unwrap();
    let apple = workspace::root().join("tests/profiles/lists/link-map.txt");
    let mut command = workspace::reorder();
    command.current_dir(program.directory()).args(["order", "plain", "-t", "list", "--link-map"]).arg(apple);
    let outcome = process::run(&mut command, Duration::from_secs(120)).unwrap();
    assert!(!outcome.success() && outcome.stderr_text().contains("Apple"), "{outcome}");
}

#[test]
fn programs_for_aarch64_are_ordered() {
    let program = Namesakes::of_gcc().unwrap();
    let source = "\
        __attribute__((noinline)) int alpha(int n) { return n + 1; }\n\
        __attribute__((noinline)) int beta(int n) { return n * alpha(n); }\n\
        __attribute__((noinline)) int gamma_(int n) { return n - beta(n); }\n\
        void _start(void) { gamma_(3); for (;;) { } }\n";
    std::fs::write(program.path("arm.c"), source).unwrap();
    let link = "ld.lld$LLVM arm.o -Map=arm.map -o arm";
    program
        .run(&format!(
            "clang$LLVM --target=aarch64-linux-gnu -O1 -ffunction-sections -c arm.c -o arm.o && {link}"
        ))
        .unwrap();
    let list = "gamma_\n_start\nalpha\n";
    for (flags, flag) in
        [(&[][..], "--symbol-ordering-file=order"), (&["--link-map", "arm.map"][..], "-T order")]
    {
        let (order, _) = order(&program, "arm", list, flags);
        std::fs::write(program.path("order"), &order).unwrap();
        program.run(&format!("{link} {flag}")).unwrap();
        let got = text_sections(&program.map("arm").unwrap());
        assert_eq!(names(&got), [".text.gamma_", ".text._start", ".text.alpha", ".text.beta"], "{order}");
        program.run(link).unwrap();
    }
    let mut command = workspace::reorder();
    command.current_dir(program.directory()).args(["apply", "arm", "--strategy", "random", "-o", "moved"]);
    let outcome = process::run(&mut command, Duration::from_secs(120)).unwrap();
    assert!(outcome.success() && outcome.stdout_text().contains("verified"), "{outcome}");
}

/// Tables of two kinds in turn: within a kind, their contents are nearly the same.
#[test]
fn similar_data_is_put_side_by_side() {
    let program = Namesakes::of_gcc().unwrap();
    let table = |n: u32| {
        let factor = if n.is_multiple_of(2) { 0x0101_0307 } else { 0x2f35_4d11 };
        let words: String = (1..40).map(|word: u32| format!("{},", word.wrapping_mul(factor))).collect();
        format!("const unsigned table_{n}[] = {{ {words} {n} }};\n")
    };
    let source: String = (0..12).map(table).collect();
    std::fs::write(program.path("tables.c"), source).unwrap();
    program.run("gcc -O1 -fdata-sections -c tables.c").unwrap();
    let image = program.link("lld", "plain", "tables.o").unwrap();
    let changes = |tables: &[u32]| tables.windows(2).filter(|pair| pair[0] % 2 != pair[1] % 2).count();
    assert_eq!(changes(&tables(&image)), 11, "the compiler has them in turn");
    let (order, _) = order(&program, "plain", "main\n", &["--data"]);
    assert!(order.contains("# data objects 12 of "), "{order}");
    std::fs::write(program.path("order"), &order).unwrap();
    let flags = "tables.o -Wl,--symbol-ordering-file,order";
    let after = tables(&program.link("lld", "ordered", flags).unwrap());
    assert_eq!(program.run("./ordered").unwrap(), OUTPUT);
    assert_eq!((after.len(), changes(&after)), (12, 1), "all of one kind, then all of the other: {after:?}");
}

/// Numbers of the tables by their addresses.
fn tables(image: &Path) -> Vec<u32> {
    let listing = process::shell(&format!("nm -n '{}'", image.display()), Duration::from_secs(60)).unwrap();
    listing.lines().filter_map(|line| line.split_once(" table_")?.1.parse().ok()).collect()
}
