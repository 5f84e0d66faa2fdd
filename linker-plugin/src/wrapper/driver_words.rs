//! Whether the arguments of a call are a linker's or a compiler's, and which linker they name.
//!
//! Takes words without response files. Decides by options that only one of the two understands; a call that both would
//! understand is a linker's, because this program is a linker.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::linker_names;

/// Options that no compiler takes. Compilers put them on the command line of their linker; users who have a compiler
/// write them after `-Wl,` or `-Xlinker`.
const LINKERS_ONLY: [&[u8]; 14] = [
    b"-dynamic-linker",
    b"--dynamic-linker",
    b"-plugin",
    b"--plugin",
    b"--eh-frame-hdr",
    b"--start-group",
    b"--as-needed",
    b"--no-dynamic-linker",
    b"-flavor",
    b"-platform_version",
    b"-macosx_version_min",
    b"-lto_library",
    b"-m",
    b"--whole-archive",
];

/// Options that no linker takes.
const COMPILERS_ONLY: [&[u8]; 22] = [
    b"-nodefaultlibs",
    b"-nostartfiles",
    b"-nolibc",
    b"-Xlinker",
    b"-static-pie",
    b"-static-libgcc",
    b"-shared-libgcc",
    b"-static-libstdc++",
    b"-rdynamic",
    b"-pthread",
    b"-m64",
    b"-m32",
    b"-target",
    b"-isysroot",
    b"-fPIC",
    b"-fpic",
    b"-fPIE",
    b"-fpie",
    b"-c",
    b"-###",
    b"-dumpmachine",
    b"-dumpversion",
];

/// Prefixes of options that no linker takes.
const COMPILERS_BEGINNINGS: [&[u8]; 13] = [
    b"-Wl,",
    b"-Wa,",
    b"-Wp,",
    b"-fuse-ld=",
    b"--ld-path=",
    b"--target=",
    b"-march=",
    b"-mtune=",
    b"-mcpu=",
    b"-mmacosx-version-min=",
    b"-fsanitize=",
    b"-stdlib=",
    b"-print-",
];

/// What compilers compile.
const SOURCES: [&[u8]; 8] = [b".c", b".cc", b".cpp", b".cxx", b".C", b".s", b".S", b".rs"];

/// The name under which we are always a compiler. rustc takes what is named like `reorder-ld` for a bare linker.
const COMPILER_NAME: &[u8] = b"reorder-cc";

/// Whether this program was called as a compiler and not as a linker: under `arguments_zero`, the name of our own
/// command, with `words`, arguments with what their response files hold.
pub(crate) fn is_driver_call(arguments_zero: &OsStr, words: &[OsString]) -> bool {
    let called = Path::new(arguments_zero).file_name().unwrap_or_default();
    if called.as_bytes().starts_with(COMPILER_NAME) {
        return true;
    }
    // Compilers look for linkers by these names, and compilers are not called by them.
    if linker_names::is_linker(called) {
        return false;
    }
    let mut of_compiler = false;
    let mut words = words.iter().map(|word| word.as_bytes());
    while let Some(word) = words.next() {
        if LINKERS_ONLY.contains(&word) {
            return false;
        }
        of_compiler |= COMPILERS_ONLY.contains(&word)
            || COMPILERS_BEGINNINGS.iter().any(|beginning| word.starts_with(beginning))
            || folder_of(word).is_some()
            || !word.starts_with(b"-") && SOURCES.iter().any(|suffix| word.ends_with(suffix));
        // The next word belongs to the option in any case.
        if matches!(
            word,
            b"-o" | b"-L" | b"-l" | b"-T" | b"-Xlinker" | b"-Xclang" | b"-z" | b"-h" | b"-soname"
        ) {
            words.next();
        }
    }
    of_compiler
}

/// What to say when rustc calls us as a bare linker, by mistake: it did not ask for a program with its startup code, so
/// the link fails, or makes one that does not run.
pub(crate) fn advice(arguments_zero: &OsStr, words: &[OsString]) -> Option<&'static str> {
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let file = words.iter().map(Path::new).find(|path| path.ends_with("symbols.o"));
    let folder = file.and_then(Path::parent).and_then(Path::file_name)?;
    let is_own_name = Path::new(arguments_zero).file_name().is_some_and(|name| name == "reorder-ld");
    let is_mistake =
        folder.as_bytes().starts_with(b"rustc") && has("-lc") && !has("-dynamic-linker") && is_own_name;
    is_mistake.then_some(
        "rustc takes a linker with this name for a bare one, which links no C library; call it -C linker=reorder-cc",
    )
}

/// The linker that `words` of a compiler name by its path: the last of `--ld-path=`, else the last
/// `-fuse-ld=` if it is absolute.
pub(crate) fn linker_by_path(words: &[OsString]) -> Option<OsString> {
    let last = |option: &[u8]| words.iter().rev().find_map(|word| word.as_bytes().strip_prefix(option));
    let by_kind = || last(b"-fuse-ld=").filter(|linker| linker.starts_with(b"/"));
    last(b"--ld-path=")
        .or_else(by_kind)
        .filter(|linker| !linker.is_empty())
        .map(|linker| OsStr::from_bytes(linker).to_owned())
}

/// The folders that `-B` names, in their order.
pub(crate) fn folders(words: &[OsString]) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    let mut words = words.iter().map(|word| word.as_bytes());
    while let Some(word) = words.next() {
        let folder = if word == b"-B" { words.next() } else { folder_of(word) };
        folders.extend(folder.map(|folder| PathBuf::from(OsString::from_vec(folder.to_vec()))));
    }
    folders
}

/// The folder of `-BFOLDER`. Linkers have `-Bstatic` and the like.
fn folder_of(word: &[u8]) -> Option<&[u8]> {
    let linkers = ["static", "dynamic", "symbolic", "group", "shareable", "no-symbolic"];
    word.strip_prefix(b"-B")
        .filter(|rest| !rest.is_empty() && !linkers.iter().any(|name| rest.starts_with(name.as_bytes())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn compilers_are_told_from_linkers() {
        for line in [
            // rustc: for Linux, with a linker of its own, for macOS.
            "-m64 symbols.o a.o -Wl,--as-needed -Wl,-Bstatic libstd.rlib -lgcc_s -lc -o a -nodefaultlibs",
            "-m64 a.o -lc -B/s/gcc-ld -fuse-ld=lld -Wl,--eh-frame-hdr -o a -pie",
            "-arch arm64 -mmacosx-version-min=11.0.0 a.o -lSystem -o a -Wl,-dead_strip -nodefaultlibs",
            "main.o -o -m -pthread",
            "-Xlinker --eh-frame-hdr main.o",
            "main.c -o main",
            "--target=arm64-apple-macos main.o -o main",
        ] {
            assert!(is_driver_call(OsStr::new("reorder-ld"), &words(line)), "{line}");
        }
    }

    #[test]
    fn linkers_are_told_from_compilers() {
        for line in [
            "",
            "--version",
            "-o a a.o -lc",
            "-r -o c.o a.o b.o",
            "-shared -o liba.so a.o -lm -Bstatic -lx -Bsymbolic-functions",
            "-plugin p.so --build-id --eh-frame-hdr -m elf_x86_64 -dynamic-linker /lib/ld.so -pie -o a crt1.o a.o -lc",
            "--hash-style=gnu -m elf_x86_64 -o x.c -L -pthread a.o",
            "-flavor gnu a.o -o a",
            "-demangle -dynamic -arch arm64 -platform_version macos 11.0.0 11.0.0 -o a a.o -lSystem",
            "-o main.c a.o",
            "-m elf_i386 -T script.s -o a a.o",
            "-z -m64 a.o",
        ] {
            assert!(!is_driver_call(OsStr::new("reorder-ld"), &words(line)), "{line}");
            assert!(is_driver_call(OsStr::new("/x/reorder-cc"), &words(line)), "{line}");
        }
    }

    #[test]
    fn a_linkers_own_name_is_for_linking() {
        for name in ["ld", "/x/ld.lld", "ld.bfd", "x86_64-linux-gnu-ld", "ld64.lld", "ld.lld-22"] {
            assert!(!is_driver_call(OsStr::new(name), &words("-c script.mri -r -o out a.o")), "{name}");
        }
        assert!(is_driver_call(OsStr::new("reorder-ld"), &words("-c script.c -o out")));
    }

    #[test]
    fn rustc_is_told_of_the_other_name() {
        let line = "/tmp/rustcQiF/symbols.o a.o -lgcc_s -lc --eh-frame-hdr -o a --gc-sections -pie";
        assert!(advice(OsStr::new("/x/reorder-ld"), &words(line)).is_some());
        assert!(advice(OsStr::new("/x/ld"), &words(line)).is_none());
        assert!(advice(OsStr::new("reorder-ld"), &words(&line.replace("-lc ", ""))).is_none());
        assert!(advice(OsStr::new("reorder-ld"), &words("symbols.o -lc")).is_none());
        assert!(advice(OsStr::new("reorder-ld"), &[]).is_none());
    }

    #[test]
    fn named_linkers_and_folders_are_found() {
        let by_path = |line: &str| linker_by_path(&words(line)).map(|path| path.into_string().unwrap());
        assert_eq!(by_path("-fuse-ld=lld a.o"), None);
        assert_eq!(by_path("-fuse-ld=/opt/ld.lld a.o"), Some("/opt/ld.lld".to_owned()));
        assert_eq!(by_path("--ld-path=one -fuse-ld=/opt/ld.lld --ld-path=two"), Some("two".to_owned()));
        assert_eq!(folders(&words("-Bone -B two -Bstatic -B")), ["one", "two"].map(PathBuf::from));
    }

    proptest! {
        #[test]
        fn any_words_are_one_or_the_other(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..12),
            place in any::<prop::sample::Index>(),
        ) {
            let mut words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
            let (_, _, _) = (linker_by_path(&words), folders(&words), is_driver_call(OsStr::new("ld"), &words));
            // What a compiler adds for its linker decides, anywhere before words without options.
            words.retain(|word| !word.as_bytes().starts_with(b"-"));
            words.insert(place.index(words.len() + 1), "--eh-frame-hdr".into());
            prop_assert!(!is_driver_call(OsStr::new("ld"), &words));
        }
    }
}
