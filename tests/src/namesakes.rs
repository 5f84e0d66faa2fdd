//! A program with local functions of one name in several objects and in two members of one archive, to test which of them
//! a linker moves.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::process::shell;

const LIMIT: Duration = Duration::from_secs(120);

const MAIN: &str = "\
#include <stdio.h>\n\
__attribute__((noinline)) static int helper(int n) { return n * 3 + 1; }\n\
__attribute__((noinline)) int alpha(int n) { return helper(n) + 1; }\n\
__attribute__((noinline)) int twin_first(int n) { return n * n * 7 + 1; }\n\
__attribute__((noinline)) int twin_third(int n) { return n * n * 7 + 1; }\n\
__attribute__((noinline)) int a_function_whose_name_takes_two_lines_of_the_map(int n) { return helper(n) + 2; }\n\
__attribute__((noinline, cold)) int chilly(int n) { return n + 99; }\n\
int first(int), second(int), plus(int), twin_second(int);\n\
int unused(int n) { return n * n + 17; }\n\
int main(int count, char **words) {\n\
printf(\"%d %d %d %d %d %d %d %d %d\\n\", alpha(count), a_function_whose_name_takes_two_lines_of_the_map(count),\n\
first(count), second(count), plus(count), twin_first(count), twin_second(count), twin_third(count), chilly(count));\n\
return words == 0; }\n";
const FIRST: &str = "\
__attribute__((noinline)) static int helper(int n) { return n * 5 + 1; }\n\
int first(int n) { return helper(n) + 3; }\n\
__attribute__((noinline)) int twin_second(int n) { return n * n * 7 + 1; }\n";
const SECOND: &str = "\
__attribute__((noinline)) static int helper(int n) { return n * 6 + 1; }\n\
int second(int n) { return helper(n) + 4; }\n";
const PLUS: &str = "\
#include <string>\n\
#include <vector>\n\
template <typename T> __attribute__((noinline)) int total(const std::vector<T> &values) {\n\
int sum = 0; for (const T &value : values) sum += int(value); return sum; }\n\
extern \"C\" int plus(int n) { std::vector<int> values; for (int i = 0; i < n + 3; ++i) values.push_back(i);\n\
return total(values) + int(std::to_string(n).size()); }\n";

/// What the program prints.
pub const OUTPUT: &str = "5 6 9 11 7 8 8 8 100\n";

/// Linkers and the flag that selects each in a compiler.
pub const LINKERS: [(&str, &str); 4] = [
    ("bfd", "g++ -fuse-ld=bfd"),
    ("gold", "g++ -fuse-ld=gold"),
    ("mold", "g++ -fuse-ld=mold"),
    ("lld", "clang++$LLVM --ld-path=ld.lld$LLVM"),
];

/// The compiled objects, in a directory of their own.
#[derive(Debug)]
pub struct Namesakes {
    directory: TempDir,
}

impl Namesakes {
    /// Compiles the sources by `c` and its C++ counterpart, each function in a section of its own.
    ///
    /// # Errors
    /// The compiler's messages.
    pub fn compile(c: &str, plus: &str) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        for (name, source) in
            [("main.c", MAIN), ("first.c", FIRST), ("second.c", SECOND), ("plus.cc", PLUS), ("copy.cc", PLUS)]
        {
            let source = if name == "copy.cc" {
                source.replace("plus(", "copy(").replace("n + 3", "n + 4")
            } else {
                source.to_owned()
            };
            std::fs::write(directory.path().join(name), source).map_err(|error| error.to_string())?;
        }
        let namesakes = Self { directory };
        namesakes.run(&format!(
            "mkdir -p dir && {c} -c main.c -o dir/main.o && {c} -c first.c second.c && {plus} -c plus.cc copy.cc && \
             rm -f dir/libpair.a && ar rcs dir/libpair.a first.o second.o"
        ))?;
        Ok(namesakes)
    }

    /// Compiled by gcc at `-O1`, without folding.
    ///
    /// # Errors
    /// The compiler's messages.
    pub fn of_gcc() -> Result<Self, String> {
        let flags = "-O1 -ffunction-sections -fno-ipa-icf";
        Self::compile(&format!("gcc {flags}"), &format!("g++ {flags}"))
    }

    /// Links the program `name` by one of [`LINKERS`] with a map `name.map`; gives its path.
    ///
    /// # Errors
    /// The linker's messages.
    pub fn link(&self, linker: &str, name: &str, flags: &str) -> Result<PathBuf, String> {
        let (_, command) = LINKERS
            .into_iter()
            .find(|(other, _)| *other == linker)
            .ok_or_else(|| format!("no linker is called {linker}"))?;
        self.run(&format!(
            "{command} dir/main.o plus.o copy.o dir/libpair.a -Wl,-Map={name}.map {flags} -o {name}"
        ))?;
        Ok(self.path(name))
    }

    /// The map that was written with a program.
    ///
    /// # Errors
    /// A map that cannot be read.
    pub fn map(&self, name: &str) -> Result<Vec<u8>, String> {
        std::fs::read(self.path(&format!("{name}.map"))).map_err(|error| format!("{name}.map: {error}"))
    }

    /// Runs a line of shell in the directory.
    ///
    /// # Errors
    /// Its messages.
    pub fn run(&self, line: &str) -> Result<String, String> {
        shell(&format!("cd '{}' && {line}", self.directory.path().display()), LIMIT)
    }

    /// A file of the directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }
}
