//! Names of the versioned tools that tests run. Test support; the product runs none of them.
//!
//! Takes `scripts/tool-versions`, which shell scripts source as well. A test that starts a tool itself asks [`llvm`] or
//! [`older_gcc`] for its name; a test that runs a line of shell sets the variables of [`variables`] and writes
//! `clang$LLVM`.

/// Lines of shell: comments, and `export NAME=VALUE` without quotes.
const VERSIONS: &str = include_str!("../../../scripts/tool-versions");

/// The name of an LLVM tool with its version: `llvm("clang++")` is `clang++-22` for LLVM 22.
#[must_use]
pub fn llvm(tool: &str) -> String {
    format!("{tool}{}", value("LLVM"))
}

/// The tool that the first word of a recipe names: `clang$LLVM` has the version, as in a shell with [`variables`].
#[must_use]
pub fn tool(word: &str) -> String {
    word.strip_suffix("$LLVM").map_or_else(|| word.to_owned(), llvm)
}

/// The directory that has LLVM's tools under their names without a version.
#[must_use]
pub fn llvm_directory() -> String {
    format!("/usr/lib/llvm{}/bin", value("LLVM"))
}

/// The file name of LLVM's shared library.
#[must_use]
pub fn llvm_library() -> String {
    format!("libLLVM.so.{}.1", value("LLVM").trim_start_matches('-'))
}

/// A gcc that writes an older format of coverage than the default one.
#[must_use]
pub fn older_gcc() -> &'static str {
    value("OLDER_GCC")
}

/// Names and values of all variables, for the environment of a shell.
pub fn variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    VERSIONS.lines().filter_map(|line| line.strip_prefix("export ")?.split_once('='))
}

/// The value of a variable; empty when there is none, which no tool's name survives.
fn value(wanted: &str) -> &'static str {
    variables().find(|(name, _)| *name == wanted).map_or("", |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_in_a_version() {
        let ends_in_digit = |name: &str| name.ends_with(|last: char| last.is_ascii_digit());
        let clang = llvm("clang");
        assert!(clang.starts_with("clang-") && ends_in_digit(&clang), "{clang}");
        assert!(older_gcc().starts_with("gcc-") && ends_in_digit(older_gcc()), "{}", older_gcc());
    }
}
