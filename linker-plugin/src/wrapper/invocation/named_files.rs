//! The files that a linker's arguments name: by path, by `-l`, in a list, or as the value of an option.
//!
//! Takes arguments without response files; gives existing files in their order. Libraries are looked for as linkers do it:
//! in the given folders, in any position, and then in those that linkers have built in.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Options whose next argument is written, not read.
const WRITTEN: [&[u8]; 7] =
    [b"-o", b"--output", b"-Map", b"--Map", b"-map", b"--dependency-file", b"-dependency_info"];
/// Options before `=FILE` that is written, not read.
const WRITTEN_VALUES: [&[u8]; 5] = [b"-Map", b"--Map", b"--dependency-file", b"--out-implib", b"--output"];

/// Existing files that `arguments` of a linker in `directory` name.
pub(super) fn named_files(arguments: &[OsString], directory: &Path) -> Vec<PathBuf> {
    let folders = library_folders(arguments, directory);
    let mut files = Vec::new();
    let mut is_static = false;
    let mut words = arguments.iter().map(|argument| argument.as_bytes());
    while let Some(word) = words.next() {
        match word {
            _ if WRITTEN.contains(&word) => {
                words.next();
            }
            b"-static" | b"-Bstatic" | b"-dn" | b"-non_shared" => is_static = true,
            b"-Bdynamic" | b"-dy" | b"-call_shared" => is_static = false,
            b"-L" | b"--library-path" => {
                words.next();
            }
            b"-l" | b"--library" => {
                files.extend(words.next().and_then(|name| library(name, is_static, &folders)))
            }
            b"-filelist" => {
                if let Some(list) = words.next() {
                    listed(list, directory, &mut files);
                }
            }
            _ => files.extend(match library_name(word) {
                Some(name) => library(name, is_static, &folders),
                None => file_of(word, directory),
            }),
        }
    }
    files
}

/// Whether one of `arguments` is something that can be read only once, such as a pipe of a shell's `<(…)`.
pub(super) fn is_read_once(arguments: &[OsString], directory: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_once = |path: &[u8]| {
        let path = directory.join(OsStr::from_bytes(path));
        path != Path::new("/dev/null")
            && std::fs::metadata(path).is_ok_and(|facts| {
                let kind = facts.file_type();
                kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device()
            })
    };
    arguments.iter().map(|argument| argument.as_bytes()).any(|word| {
        let value = word.iter().position(|&byte| byte == b'=').map(|equals| &word[equals + 1..]);
        !word.starts_with(b"-") && is_once(word) || value.is_some_and(is_once)
    })
}

fn library_name(word: &[u8]) -> Option<&[u8]> {
    word.strip_prefix(b"--library=").or_else(|| word.strip_prefix(b"-l"))
}

/// `-lNAME`: in each folder the shared library comes first, unless only archives are wanted.
fn library(name: &[u8], is_static: bool, folders: &[PathBuf]) -> Option<PathBuf> {
    let suffixes: &[&[u8]] = if is_static { &[b".a"] } else { &[b".so", b".a", b".tbd", b".dylib"] };
    let names = match name.strip_prefix(b":") {
        Some(exact) => vec![exact.to_vec()],
        None => suffixes.iter().map(|suffix| [b"lib", name, *suffix].concat()).collect(),
    };
    folders.iter().find_map(|folder| {
        names.iter().map(|name| folder.join(OsStr::from_bytes(name))).find(|path| path.is_file())
    })
}

/// An argument that is a file, or whose value is one that is read.
fn file_of(word: &[u8], directory: &Path) -> Option<PathBuf> {
    if !word.starts_with(b"-") {
        return existing(word, directory);
    }
    let equals = word.iter().position(|&byte| byte == b'=')?;
    let (name, value) = word.split_at(equals);
    if WRITTEN_VALUES.contains(&name) { None } else { existing(&value[1..], directory) }
}

fn existing(path: &[u8], directory: &Path) -> Option<PathBuf> {
    let file = directory.join(OsStr::from_bytes(path));
    (!path.is_empty() && file.is_file()).then_some(file)
}

/// Apple's `-filelist FILE[,FOLDER]`: one path a line, relative to the folder. The list is one of the files.
fn listed(list: &[u8], directory: &Path, files: &mut Vec<PathBuf>) {
    // A file whose own name holds the comma comes first, because no other file can be meant.
    let whole = existing(list, directory).map(|file| (file, directory.to_path_buf()));
    let parts = || {
        let comma = list.iter().rposition(|&byte| byte == b',')?;
        let file = existing(&list[..comma], directory)?;
        Some((file, directory.join(OsStr::from_bytes(&list[comma + 1..]))))
    };
    let Some((file, folder)) = whole.or_else(parts) else { return };
    let text = std::fs::read(&file).unwrap_or_default();
    files.push(file);
    files.extend(text.split(|&byte| byte == b'\n').filter_map(|line| existing(line, &folder)));
}

/// The folders of `-L`, then the linker's own.
fn library_folders(arguments: &[OsString], directory: &Path) -> Vec<PathBuf> {
    let mut given = Vec::new();
    let (mut sysroot, mut has_defaults) = (None, true);
    let mut words = arguments.iter().map(|argument| argument.as_bytes());
    while let Some(word) = words.next() {
        match word {
            b"-L" | b"--library-path" => given.extend(words.next()),
            b"--sysroot" => sysroot = words.next().or(sysroot),
            b"-nostdlib" | b"--nostdlib" => has_defaults = false,
            _ if WRITTEN.contains(&word) => {
                words.next();
            }
            _ => {
                given.extend(word.strip_prefix(b"--library-path=").or_else(|| word.strip_prefix(b"-L")));
                sysroot = word.strip_prefix(b"--sysroot=").or(sysroot);
            }
        }
    }
    let sysroot = sysroot.filter(|root| !root.is_empty()).map(|root| directory.join(OsStr::from_bytes(root)));
    let root = sysroot.unwrap_or_else(|| "/".into());
    let below_root = |folder: &[u8]| {
        let relative: &[u8] = &folder[folder.iter().take_while(|&&byte| byte == b'/').count()..];
        root.join(OsStr::from_bytes(relative))
    };
    let of_given = |folder: &[u8]| {
        let in_root = folder.strip_prefix(b"=").or_else(|| folder.strip_prefix(b"$SYSROOT"));
        in_root.map_or_else(|| directory.join(OsStr::from_bytes(folder)), below_root)
    };
    let mut folders: Vec<PathBuf> = given.into_iter().map(of_given).collect();
    if has_defaults {
        folders.extend(default_folders().iter().map(|folder| below_root(folder.as_bytes())));
    }
    folders
}

/// Where GNU ld, which has the longest list, looks on Debian and on systems without folders for each architecture
/// (`ld --verbose`).
fn default_folders() -> [String; 9] {
    let triple = format!("{}-linux-gnu", std::env::consts::ARCH);
    [
        format!("/usr/local/lib/{triple}"),
        format!("/lib/{triple}"),
        format!("/usr/lib/{triple}"),
        "/usr/local/lib64".to_owned(),
        "/lib64".to_owned(),
        "/usr/lib64".to_owned(),
        "/usr/local/lib".to_owned(),
        "/lib".to_owned(),
        "/usr/lib".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(line: &str, files: &[&str]) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        for name in files {
            let file = directory.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, if name.ends_with(".list") { "a.o\nb.o\nmissing.o\n" } else { "" }).unwrap();
        }
        let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let found = named_files(&arguments, directory.path());
        let relative =
            |path: &PathBuf| path.strip_prefix(directory.path()).unwrap_or(path).display().to_string();
        found.iter().map(relative).collect()
    }

    #[test]
    fn libraries_are_found_however_they_are_written() {
        let files = ["l/libx.a", "l/libx.so", "m/liby.a", "m/libx.so"];
        for line in ["-l x -L l", "--library x -Ll", "--library=x --library-path l", "-lx --library-path=l"] {
            assert_eq!(names(line, &files), ["l/libx.so"], "{line}");
        }
        assert_eq!(
            names("-L l -L m -Bstatic -lx -ly -Bdynamic -lx", &files),
            ["l/libx.a", "m/liby.a", "l/libx.so"]
        );
        for switch in ["-static", "-dn", "-non_shared"] {
            assert_eq!(names(&format!("-L m -L l {switch} -lx"), &files), ["l/libx.a"], "{switch}");
        }
        assert_eq!(names("-nostdlib -lc", &files), [""; 0]);
        assert!(names("-lc", &files)[0].ends_with("/libc.so"));
    }

    #[test]
    fn a_system_root_precedes_the_linkers_folders() {
        let files = ["root/usr/lib/libq.so", "root/opt/libz.a"];
        assert_eq!(
            names("--sysroot=root -lq -L=/opt -lz", &files),
            ["root/usr/lib/libq.so", "root/opt/libz.a"]
        );
        assert_eq!(names("--sysroot root -lq", &files), ["root/usr/lib/libq.so"]);
    }

    #[test]
    fn lists_of_files_are_files() {
        let files = ["f.list", "a.o", "d/b.o"];
        assert_eq!(names("-filelist f.list -o out", &files), ["f.list", "a.o"]);
        assert_eq!(names("-filelist f.list,d -o out", &files), ["f.list", "d/b.o"]);
    }

    #[test]
    fn pipes_are_read_once() {
        let directory = tempfile::tempdir().unwrap();
        nix::unistd::mkfifo(&directory.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let once = |line: &str| {
            let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            is_read_once(&arguments, directory.path())
        };
        assert!(once("a.o pipe") && once("--version-script=pipe"));
        assert!(!once("a.o . -Map=/dev/null --x=/dev/null"));
    }
}
