//! A call of a linker, as far as it matters for an order.
//!
//! Takes the linker's arguments; gives the output, the files that are read, and reasons to leave the link alone. Options
//! that are not known here are left to the linker.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::response_files::expanded;

mod named_files;

/// One call of a linker.
#[derive(Clone, Debug)]
pub(crate) struct Invocation {
    /// The arguments as they came.
    pub(crate) arguments: Vec<OsString>,
    /// The same with response files read.
    pub(crate) expanded: Vec<OsString>,
    /// Where the linker works.
    pub(crate) directory: PathBuf,
    /// What is linked, as the arguments spell it.
    pub(crate) output: PathBuf,
}

/// Why a link is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftAlone {
    /// No link: a query of the version or of the linker's capabilities.
    Question,
    /// The result is an object file.
    Relocatable,
    /// The arguments state an order already.
    Ordered,
    /// The output is no regular file, or a symbolic link.
    UnusualOutput,
    /// Further files are written next to the output, and would be lost.
    FilesBesideOutput,
    /// An input is a pipe or the like, and the link would have to read it twice.
    InputReadOnce,
    /// The linker names the map after its output, which it would find at another place.
    MapNamedAfterOutput,
}

impl LeftAlone {
    /// In a few words.
    #[must_use]
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Question => "nothing is linked",
            Self::Relocatable => "the output is an object file",
            Self::Ordered => "the arguments state an order already",
            Self::UnusualOutput => "the output is no regular file",
            Self::FilesBesideOutput => "the linker keeps intermediate files",
            Self::InputReadOnce => "an input can be read only once",
            Self::MapNamedAfterOutput => "the linker names the map after the output",
        }
    }
}

impl Invocation {
    /// A call with `arguments` in `directory`.
    #[must_use]
    pub(crate) fn new(arguments: Vec<OsString>, directory: &Path) -> Self {
        let expanded = expanded(&arguments, directory);
        let output = last_value(&expanded, &["-o", "--output"]).map_or_else(|| "a.out".into(), PathBuf::from);
        Self { arguments, expanded, directory: directory.to_path_buf(), output }
    }

    /// Where the output is.
    #[must_use]
    pub(crate) fn output_path(&self) -> PathBuf {
        self.directory.join(&self.output)
    }

    /// The name that the program has when it is used: cargo links `name-0123456789abcdef` and copies it.
    #[must_use]
    pub(crate) fn program(&self) -> Option<OsString> {
        let name = self.output.file_name()?;
        let bytes = name.as_bytes();
        let cargo = bytes.len().checked_sub(17).map(|dash| bytes.split_at(dash)).filter(|(stem, hash)| {
            !stem.is_empty()
                && hash[0] == b'-'
                && hash[1..].iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        Some(cargo.map_or(name, |(stem, _)| OsStr::from_bytes(stem)).to_owned())
    }

    /// Whether this is a program that a build runs once and throws away.
    #[must_use]
    pub(crate) fn is_helper_of_a_build(&self) -> bool {
        let name = self.output.file_name().map(OsStr::as_bytes).unwrap_or_default();
        [&b"build_script_"[..], b"build-script-", b"cmTC_", b"conftest"]
            .iter()
            .any(|start| name.starts_with(start))
    }

    /// Why this link is left alone, if so.
    #[must_use]
    pub(crate) fn left_alone(&self) -> Option<LeftAlone> {
        if self.has(&["-r", "-i", "--relocatable", "-relocatable", "-Ur"]) {
            return Some(LeftAlone::Relocatable);
        }
        if named_files::is_read_once(&self.expanded, &self.directory) && self.output != Path::new("/dev/null")
        {
            return Some(LeftAlone::InputReadOnce);
        }
        if self.has(&["--version", "--help"]) || self.inputs().next().is_none() {
            return Some(LeftAlone::Question);
        }
        let orders = [
            "--symbol-ordering-file",
            "-symbol-ordering-file",
            "--section-ordering-file",
            "-section-ordering-file",
            "-order_file",
            "--call-graph-ordering-file",
        ];
        if orders.iter().any(|order| self.has_with_value(order)) {
            return Some(LeftAlone::Ordered);
        }
        let is_unusual =
            std::fs::symlink_metadata(self.output_path()).is_ok_and(|metadata| !metadata.is_file());
        if is_unusual || self.output.file_name().is_none() {
            return Some(LeftAlone::UnusualOutput);
        }
        if self.has_map_named_after_output() {
            return Some(LeftAlone::MapNamedAfterOutput);
        }
        self.leaves_files_beside_output().then_some(LeftAlone::FilesBesideOutput)
    }

    /// Whether one of `names` is among the arguments.
    #[must_use]
    pub(crate) fn has(&self, names: &[&str]) -> bool {
        self.expanded.iter().any(|argument| names.iter().any(|name| argument == name))
    }

    /// Whether `name`, or `name=…`, is among the arguments.
    #[must_use]
    pub(crate) fn has_with_value(&self, name: &str) -> bool {
        self.expanded.iter().any(|argument| {
            argument
                .as_bytes()
                .strip_prefix(name.as_bytes())
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'=')
        })
    }

    /// The file that the linker writes a map to.
    #[must_use]
    pub(crate) fn map(&self) -> Option<PathBuf> {
        let map = last_value(&self.expanded, &["-Map", "--Map", "-map"]).filter(|map| *map != "-")?;
        Some(self.directory.join(map))
    }

    /// Files in which linkers record where their output is.
    #[must_use]
    pub(crate) fn files_about_output(&self) -> Vec<PathBuf> {
        let dependencies = last_value(&self.expanded, &["--dependency-file", "-dependency_info"]);
        self.map().into_iter().chain(dependencies.map(|file| self.directory.join(file))).collect()
    }

    /// Whether the linker leaves further files next to its output, which are lost when it links at another place.
    #[must_use]
    pub(crate) fn leaves_files_beside_output(&self) -> bool {
        let options = ["save-temps", "thinlto-index-only", "thinlto-emit", "time-trace"];
        self.expanded.iter().any(|argument| {
            let text = argument.to_string_lossy();
            text.starts_with('-') && options.iter().any(|option| text.contains(option))
        })
    }

    /// Files that the arguments name, by path, by `-l` or as the value of an option: what the link depends on, as far as
    /// the arguments tell.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let output = self.output_path();
        let files = named_files::named_files(&self.expanded, &self.directory);
        files.into_iter().filter(move |path| *path != output)
    }

    /// Whether the name of the map is for the linker to find: in a directory, or made of the output's with `%`.
    fn has_map_named_after_output(&self) -> bool {
        self.map().is_some_and(|map| map.is_dir() || map.as_os_str().as_bytes().contains(&b'%'))
    }
}

/// The value of the last `NAME VALUE`, `NAME=VALUE` or, for one letter, `-oVALUE`. `-output…` and the like are other
/// options.
fn last_value<'arguments>(arguments: &'arguments [OsString], names: &[&str]) -> Option<&'arguments OsStr> {
    let mut value = None;
    let mut position = 0;
    while let Some(argument) = arguments.get(position) {
        position += 1;
        for name in names {
            let Some(rest) = argument.as_bytes().strip_prefix(name.as_bytes()) else { continue };
            match rest.first() {
                None => {
                    value = arguments.get(position).map(OsString::as_os_str).or(value);
                    position += 1;
                }
                Some(b'=') if name.len() > 2 => value = Some(OsStr::from_bytes(&rest[1..])),
                // `-oformat` is GNU ld's, `-objc…`, `-order_file` and the like are Apple's.
                Some(_) if *name == "-o" && !is_longer_option(argument) => {
                    value = Some(OsStr::from_bytes(rest))
                }
                Some(_) => {}
            }
        }
    }
    value
}

fn is_longer_option(argument: &OsStr) -> bool {
    let longer =
        ["-oformat", "-objc", "-order_file", "-output", "-oso_prefix", "-object_path_lto", "-omagic"];
    longer.iter().any(|option| argument.as_bytes().starts_with(option.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invocation(arguments: &[&str], directory: &Path) -> Invocation {
        Invocation::new(arguments.iter().map(OsString::from).collect(), directory)
    }

    #[test]
    fn the_last_output_counts() {
        let here = Path::new("/nowhere");
        for (arguments, output) in [
            (&["a.o"][..], "a.out"),
            (&["-o", "x", "a.o"], "x"),
            (&["-ox", "-o", "y"], "y"),
            (&["--output=z"], "z"),
            (&["--oformat=elf", "-order_file", "f", "-o", "w"], "w"),
        ] {
            assert_eq!(invocation(arguments, here).output, Path::new(output), "{arguments:?}");
        }
    }

    #[test]
    fn cargo_adds_a_hash_to_names() {
        let program = |output: &str| invocation(&["-o", output], Path::new("/")).program();
        assert_eq!(program("target/rg-0123456789abcdef"), Some("rg".into()));
        assert_eq!(program("target/rg-0123456789abcdeg"), Some("rg-0123456789abcdeg".into()));
        assert_eq!(program("-0123456789abcdef"), Some("-0123456789abcdef".into()));
    }

    #[test]
    fn inputs_are_the_files_that_arguments_name() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.o", "libx.a", "s.ld", "out", "m.map"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let arguments = [
            "-o",
            "out",
            "a.o",
            "-L.",
            "-lx",
            "-lmissing",
            "--version-script=s.ld",
            "-Map=m.map",
            "b.o",
            "--as-needed",
        ];
        let invocation = invocation(&arguments, directory.path());
        let names: Vec<_> = invocation.inputs().map(|path| path.file_name().unwrap().to_owned()).collect();
        assert_eq!(names, ["a.o", "libx.a", "s.ld"]);
        assert_eq!(invocation.left_alone(), None);
    }

    #[test]
    fn some_links_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a.o"), "").unwrap();
        std::os::unix::fs::symlink("a.o", directory.path().join("link")).unwrap();
        for (arguments, expected) in [
            (&["--version"][..], Some(LeftAlone::Question)),
            (&["-v"], Some(LeftAlone::Question)),
            (&["-r", "a.o"], Some(LeftAlone::Relocatable)),
            (&["a.o", "--symbol-ordering-file=f"], Some(LeftAlone::Ordered)),
            (&["a.o", "--symbol-ordering-file", "f"], Some(LeftAlone::Ordered)),
            (&["a.o", "-o", "/dev/null"], Some(LeftAlone::UnusualOutput)),
            (&["a.o", "-o", "link"], Some(LeftAlone::UnusualOutput)),
            (&["-relocatable", "a.o"], Some(LeftAlone::Relocatable)),
            (&["a.o", "-Map=."], Some(LeftAlone::MapNamedAfterOutput)),
            (&["a.o", "-Map", "maps/%.txt"], Some(LeftAlone::MapNamedAfterOutput)),
            (&["-filelist", "a.o"], None),
            (&["a.o", "--version-script=/dev/zero"], Some(LeftAlone::InputReadOnce)),
            (&["a.o", "-v"], None),
        ] {
            assert_eq!(invocation(arguments, directory.path()).left_alone(), expected, "{arguments:?}");
        }
    }
}
