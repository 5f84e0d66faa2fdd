//! Names of dynamic symbols in another order: every name still leads to its symbol.
//!
//! `REORDER_LIBRARIES=1000` sets how many installed libraries are tried, `REORDER_LOADED=200` how many of them are loaded, and
//! `REORDER_LARGEST=100000000` the largest file.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use end_to_end::process;
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol, SymbolKind};
use reorder_relocate::elf::names::{bytes_of_names, place_names};
use reorder_verify::{VerifyOptions, verify};
use tempfile::TempDir;

/// Looks up all names in a file, and writes each with its distance from the library's start to another one: libraries print when
/// they are loaded.
const LOADER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int count, char **arguments) {
    static char line[1 << 20];
    void *library = count == 4 ? dlopen(arguments[1], RTLD_NOW) : 0;
    FILE *names = library ? fopen(arguments[2], "r") : 0, *found_names = library ? fopen(arguments[3], "w") : 0;
    if (!names || !found_names) return 3;
    while (fgets(line, sizeof line, names)) {
        line[strcspn(line, "\n")] = 0;
        Dl_info place = {0};
        char *found = dlsym(library, line);
        int known = found && dladdr(found, &place);
        fprintf(found_names, "%s %s %lx\n", line, known ? strrchr(place.dli_fname, '/') : "-", known ? found - (char *)place.dli_fbase : 0L);
    }
    _Exit(fclose(found_names) != 0);
}
"#;

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |value| value.parse().unwrap())
}

/// Installed libraries, the largest first, up to a size.
fn libraries() -> Vec<PathBuf> {
    let largest = number("REORDER_LARGEST", 1 << 20) as u64;
    let mut folders = vec![Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH))];
    let mut files = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && path.to_string_lossy().contains(".so") {
                files.insert(path);
            }
        }
    }
    let sized = files.into_iter().filter_map(|path| Some((fs::metadata(&path).ok()?.len(), path)));
    let mut sized: Vec<(u64, PathBuf)> = sized.filter(|(size, _)| *size <= largest).collect();
    sized.sort_by(|one, other| other.cmp(one));
    sized.into_iter().map(|(_, path)| path).collect()
}

/// Names of the symbols that `image` defines, without thread-local ones, whose addresses differ in each thread.
fn defined(image: &[u8]) -> Vec<String> {
    let file: ElfFile64<'_> = ElfFile64::parse(image).unwrap();
    let symbols = file.dynamic_symbols().filter(|symbol| symbol.is_global() && !symbol.is_undefined());
    let placed = symbols.filter(|symbol| symbol.kind() != SymbolKind::Tls);
    let names: BTreeSet<String> = placed.map(|symbol| symbol.name().unwrap().to_owned()).collect();
    names.into_iter().filter(|name| !name.is_empty()).collect()
}

/// Every third name, as if other images looked these up.
fn some(names: &[String]) -> HashSet<Vec<u8>> {
    names.iter().step_by(3).map(|name| name.as_bytes().to_vec()).collect()
}

fn loader(directory: &TempDir) -> PathBuf {
    let (source, program) = (directory.path().join("loader.c"), directory.path().join("loader"));
    fs::write(&source, LOADER).unwrap();
    let built = Command::new("gcc").arg("-O1").arg(&source).arg("-o").arg(&program).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    program
}

/// What `loader` finds in the library at `path`; `None` if it cannot be loaded.
fn looked_up(loader: &Path, path: &Path, names: &Path) -> Option<String> {
    let mut command = Command::new(loader);
    let found = names.with_extension("found");
    let outcome = process::run(command.arg(path).arg(names).arg(&found), Duration::from_secs(60)).ok()?;
    outcome.success().then(|| fs::read_to_string(found).unwrap())
}

#[test]
fn names_of_installed_libraries_lead_to_their_symbols() {
    let directory = TempDir::new().unwrap();
    let loader = loader(&directory);
    let (wanted, to_load) = (number("REORDER_LIBRARIES", 24), number("REORDER_LOADED", 12));
    let (mut proven, mut unchanged, mut loaded, mut unloadable) = (0, 0, 0, 0);
    for path in libraries() {
        if proven == wanted {
            break;
        }
        let old = fs::read(&path).unwrap();
        // Not for this processor, or not an image.
        let Ok(bytes) = bytes_of_names(&old) else { continue };
        if bytes == 0 {
            continue;
        }
        let names = defined(&old);
        let Some(new) = place_names(&old, &some(&names)).unwrap() else {
            unchanged += 1;
            continue;
        };
        assert_eq!(old.len(), new.len(), "{}", path.display());
        let report = verify(&old, &new, VerifyOptions::default()).unwrap();
        assert!(report.is_proven(), "{}: {:#?}", path.display(), report.differences);
        proven += 1;
        if loaded < to_load {
            let list = directory.path().join("names");
            fs::write(&list, names.join("\n")).unwrap();
            // Both at the same place: libraries look for others beside themselves.
            let copy = directory.path().join("libraries").join(path.file_name().unwrap());
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::write(&copy, &old).unwrap();
            let expected = looked_up(&loader, &copy, &list);
            fs::write(&copy, &new).unwrap();
            match expected {
                None => unloadable += 1,
                Some(expected) => {
                    assert_eq!(Some(expected), looked_up(&loader, &copy, &list), "{}", path.display());
                    loaded += 1;
                }
            }
            fs::remove_file(copy).unwrap();
        }
    }
    println!(
        "{proven} proven, {unchanged} unchanged, {loaded} loaded with equal symbols, {unloadable} cannot be loaded"
    );
    assert!(proven >= wanted.min(20) && loaded >= to_load.min(10), "{proven} proven, {loaded} loaded");
}

/// A library with three functions, and the same with its names placed.
fn small_library() -> (Vec<u8>, Vec<u8>) {
    let directory = TempDir::new().unwrap();
    let line = "echo 'int first(void) { return 1; } int second(void) { return 2; } int third(void) { return 3; }' | \
                gcc -shared -fPIC -O1 -x c - -o small.so";
    let built = Command::new("sh").args(["-c", line]).current_dir(directory.path()).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let old = fs::read(directory.path().join("small.so")).unwrap();
    let new = place_names(&old, &HashSet::from([b"third".to_vec()])).unwrap().unwrap();
    (old, new)
}

#[test]
fn a_reference_to_another_name_is_reported() {
    let (old, new) = small_library();
    assert!(verify(&old, &new, VerifyOptions::default()).unwrap().is_proven());
    let file: ElfFile64<'_> = ElfFile64::parse(&*new).unwrap();
    let strings = file.section_by_name(".dynstr").unwrap();
    let (symbols, _) = object::ObjectSection::file_range(&file.section_by_name(".dynsym").unwrap()).unwrap();
    let (start, size) = object::ObjectSection::file_range(&strings).unwrap();
    // The reference of each symbol, and each byte of each string, changed.
    for symbol in 1..file.dynamic_symbols().count() + 1 {
        let mut wrong = new.clone();
        wrong[symbols as usize + symbol * 24] ^= 1;
        assert!(!verify(&old, &wrong, VerifyOptions::default()).unwrap().is_proven(), "symbol {symbol}");
    }
    let table = &new[start as usize..(start + size) as usize];
    for (at, _) in table.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        let mut wrong = new.clone();
        wrong[start as usize + at] ^= 2;
        assert!(!verify(&old, &wrong, VerifyOptions::default()).unwrap().is_proven(), "string byte {at}");
    }
}

/// Nothing panics, and a table keeps its size, whatever is wrong in a file.
#[test]
fn damaged_libraries_are_survived() {
    let (old, _) = small_library();
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as usize % below
    };
    for _ in 0..3000 {
        let mut damaged = old.clone();
        for _ in 0..=random(3) {
            let at = random(damaged.len());
            damaged[at] = random(256) as u8;
        }
        if let Ok(Some(new)) = place_names(&damaged, &HashSet::from([b"third".to_vec()])) {
            assert_eq!(new.len(), damaged.len());
            let _ = verify(&damaged, &new, VerifyOptions::default());
        }
    }
}
