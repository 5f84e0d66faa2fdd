//! ARCHITECTURE.md compared with the code: everything that it names exists, and the library knows no command line.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use end_to_end::workspace;

/// Texts between single backticks, outside of drawings and listings.
fn spans(text: &str) -> Vec<String> {
    let prose: String = text.split("```").step_by(2).collect();
    prose.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Paths that do not begin with a folder of the workspace are below `reorder/`.
fn located(path: &str) -> Option<PathBuf> {
    let places = [workspace::root().join(path), workspace::root().join("reorder").join(path)];
    places.into_iter().find(|place| place.exists())
}

#[test]
fn paths_exist_and_functions_are_in_their_files() {
    let text = fs::read_to_string(workspace::root().join("ARCHITECTURE.md")).unwrap();
    let mut missing = Vec::new();
    let mut found = 0;
    for span in spans(&text) {
        let mut words = span.split_whitespace();
        let is_path = |word: &&str| word.ends_with('/') || word.ends_with(".rs");
        let Some(path) = words.next().filter(is_path) else { continue };
        let Some(place) = located(path) else {
            missing.push(path.to_owned());
            continue;
        };
        found += 1;
        for function in words {
            let code = fs::read_to_string(&place).unwrap();
            let is_there = [format!("fn {function}("), format!("fn {function}<")];
            if !is_there.iter().any(|begin| code.contains(begin)) {
                missing.push(format!("{path} {function}"));
            }
        }
    }
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {missing:#?}");
    assert!(found > 100, "{found} paths");
}

/// The crates that know no command line: only a command spells options.
const LIBRARY: [&str; 9] =
    ["base", "system", "report", "image", "trace", "verify", "relocate", "layout", "run"];

/// Long options of other programs that texts of the library name, or that its tests use.
const FOREIGN: [(&str, &[&str]); 14] = [
    ("linkers", &["--build-id", "--eh-frame-hdr", "--fix-cortex-a53-843419", "--verbose"]),
    ("order files of linkers", &["--section-ordering-file", "--symbol-ordering-file"]),
    ("linkers in tests", &["--no-warn-symbol-ordering"]),
    ("gcc and its assembler", &["--coverage", "--gsframe"]),
    ("clang and rustc in tests", &["--target", "--print"]),
    ("objcopy", &["--dump-section", "--remove-section"]),
    ("llvm-profdata", &["--extbinary", "--sample", "--text"]),
    (
        "llvm-profdata, traces",
        &["--temporal-profile-max-trace-length", "--temporal-profile-trace-reservoir-size"],
    ),
    ("create_gcov", &["--gcov_version"]),
    ("perf script", &["--no-demangle", "--ns", "--show-mmap-events", "--show-task-events"]),
    (
        "valgrind",
        &["--demangle", "--log-file", "--tool", "--trace-flags", "--trace-notbelow", "--vex-guest-chase"],
    ),
    ("callgrind", &["--compress-strings", "--dump-instr"]),
    ("docker and the dynamic loader", &["--cap-add", "--list"]),
    ("test programs of Rust", &["--exact", "--nocapture"]),
];

/// String literals of Rust code, with the lines on which they begin. Comments, and so help texts, are none.
fn literals(code: &str) -> Vec<(usize, String)> {
    let bytes = code.as_bytes();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    let hashes_at = |at: usize| bytes[at..].iter().take_while(|byte| **byte == b'#').count();
    while at < bytes.len() {
        let is_word = |at: usize| bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_';
        let rest = &code.as_bytes()[at..];
        let length = if rest.starts_with(b"//") {
            rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())
        } else if rest[0] == b'r' && (at == 0 || !is_word(at - 1) || bytes[at - 1] == b'b') {
            let hashes = hashes_at(at + 1);
            match bytes.get(at + 1 + hashes) {
                Some(b'"') => {
                    let close = format!("\"{}", "#".repeat(hashes));
                    let text = &code[at + 2 + hashes..];
                    let end = text.find(&close).unwrap();
                    found.push((line, text[..end].to_owned()));
                    2 + hashes + end + close.len()
                }
                _ => 1,
            }
        } else if rest[0] == b'"' {
            let mut end = 1;
            while rest[end] != b'"' {
                end += if rest[end] == b'\\' { 2 } else { 1 };
            }
            found.push((line, String::from_utf8_lossy(&rest[1..end]).into_owned()));
            end + 1
        } else if rest.starts_with(b"'\"'") {
            3
        } else if rest.starts_with(b"'\\") {
            3 + rest[3..].iter().position(|byte| *byte == b'\'').unwrap_or(0)
        } else {
            1
        };
        line += rest[..length].iter().filter(|byte| **byte == b'\n').count();
        at += length;
    }
    found
}

/// The long options in a text: two dashes and a letter, not within a word or a row of dashes.
fn long_options(text: &str) -> Vec<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    text.match_indices("--")
        .filter(|(at, _)| !text[..*at].ends_with(is_part))
        .map(|(at, _)| &text[at..at + text[at..].find(|letter| !is_part(letter)).unwrap_or(text.len() - at)])
        .filter(|option| option[2..].starts_with(|letter: char| letter.is_ascii_lowercase()))
        .collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn literals_of_the_library_name_no_option_of_a_command() {
    let foreign: BTreeSet<&str> = FOREIGN.iter().flat_map(|(_, options)| *options).copied().collect();
    let (mut wrong, mut used) = (Vec::new(), BTreeSet::new());
    for name in LIBRARY {
        for file in rust_files(&workspace::root().join("reorder").join(name).join("src")) {
            for (line, literal) in literals(&fs::read_to_string(&file).unwrap()) {
                for option in long_options(&literal) {
                    match foreign.get(option) {
                        Some(option) => _ = used.insert(*option),
                        None => wrong.push(format!("{}:{line}: {option}", file.display())),
                    }
                }
                if ["`reorder ", ": reorder ", "; reorder "].iter().any(|begin| literal.contains(begin)) {
                    wrong.push(format!("{}:{line}: {literal}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "give a `reorder_base::hint::Hint`, and let the command word it: {wrong:#?}");
    assert_eq!(used, foreign, "options that nothing names are not listed");
}

#[test]
fn literals_and_options_are_found() {
    let code = "let a = \"--one\"; // \"--no\"\nlet quote = '\"'; f(r#\"x \"--two\" y\"#, b\"a\\\"--three=4 ----no\");\n";
    let found = literals(code);
    let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["--one", "x \"--two\" y", "a\\\"--three=4 ----no"]);
    assert_eq!(found.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 2]);
    assert_eq!(texts.into_iter().flat_map(long_options).collect::<Vec<_>>(), ["--one", "--two", "--three"]);
}
