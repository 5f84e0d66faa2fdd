//! `@FILE` arguments: files that hold further arguments.
//!
//! Linkers and compilers read them in the same way: words separated by white space, `'` and `"` quote, a backslash takes
//! the next character as it is. Source: libiberty's `expandargv`, LLVM's `TokenizeGNUCommandLine`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use reorder_base::error::{Error, Result};
use tempfile::TempPath;

use super::options::is_own;

/// As deep as files may name each other; linkers report a loop in other words, or run out of memory.
const DEEPEST: u32 = 16;

/// Largest list of arguments that is passed without a file: Linux bounds them by a quarter of the stack's limit.
const MAX_COMMAND_LINE_LENGTH: usize = 128 << 10;

/// `arguments` with the contents of their response files, for inspection. Files that cannot be read stay as they are: the
/// linker reports them.
#[must_use]
pub(crate) fn expanded(arguments: &[OsString], directory: &Path) -> Vec<OsString> {
    let mut all = Vec::with_capacity(arguments.len());
    arguments.iter().for_each(|argument| expand(argument, directory, 0, &mut all));
    all
}

fn expand(argument: &OsString, directory: &Path, depth: u32, all: &mut Vec<OsString>) {
    match contents(argument, directory).filter(|_| depth < DEEPEST) {
        Some(text) => split(&text).iter().for_each(|inner| expand(inner, directory, depth + 1, all)),
        None => all.push(argument.clone()),
    }
}

fn is_pipe(argument: &OsStr, directory: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let file = directory.join(OsStr::from_bytes(argument.as_bytes().get(1..).unwrap_or_default()));
    std::fs::metadata(file).is_ok_and(|facts| facts.file_type().is_fifo())
}

/// The contents of the file that `argument` names after an `@`.
fn contents(argument: &OsStr, directory: &Path) -> Option<Vec<u8>> {
    let file = argument.as_bytes().strip_prefix(b"@")?;
    std::fs::read(directory.join(OsStr::from_bytes(file))).ok()
}

/// The words of a response file.
#[must_use]
pub(crate) fn split(text: &[u8]) -> Vec<OsString> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut quote: Option<u8> = None;
    let mut bytes = text.iter().copied();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\\', _) => word.get_or_insert_default().extend(bytes.next()),
            (_, Some(open)) if byte == open => quote = None,
            (_, Some(_)) => word.get_or_insert_default().push(byte),
            (b'\'' | b'"', None) => {
                quote = Some(byte);
                word.get_or_insert_default();
            }
            _ if byte.is_ascii_whitespace() || byte == b'\x0b' => words.extend(word.take()),
            _ => word.get_or_insert_default().push(byte),
        }
    }
    words.extend(word);
    words.into_iter().map(OsString::from_vec).collect()
}

/// A response file's text for `words`; [`split`] gives them back.
#[must_use]
pub(crate) fn joined(words: &[OsString]) -> Vec<u8> {
    let mut text = Vec::new();
    for word in words {
        text.push(b'"');
        for &byte in word.as_bytes() {
            if matches!(byte, b'"' | b'\\') {
                text.push(b'\\');
            }
            text.push(byte);
        }
        text.extend_from_slice(b"\"\n");
    }
    text
}

/// `words` in a response file if they are too long for a command line.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn shortened(words: Vec<OsString>) -> Result<(Vec<OsString>, Option<TempPath>)> {
    if words.iter().map(|word| word.len() + 1 + size_of::<usize>()).sum::<usize>() <= MAX_COMMAND_LINE_LENGTH
    {
        return Ok((words, None));
    }
    let (argument, file) = written(&words)?;
    Ok((vec![argument], Some(file)))
}

fn written(words: &[OsString]) -> Result<(OsString, TempPath)> {
    let failed = |error: std::io::Error| Error::io(&std::env::temp_dir(), error);
    let mut file = tempfile::Builder::new().prefix("reorder-").suffix(".rsp").tempfile().map_err(failed)?;
    file.write_all(&joined(words)).map_err(failed)?;
    let path = file.into_temp_path();
    let mut argument = OsString::from("@");
    argument.push(&path);
    Ok((argument, path))
}

/// Our options, separate from the linker's arguments.
#[derive(Debug)]
pub(crate) struct OwnWords {
    /// Ours.
    pub(crate) own_words: Vec<OsString>,
    /// The linker's; response files without our options stay as they are.
    pub(crate) linker_arguments: Vec<OsString>,
    /// What the others were replaced by.
    pub(crate) rewritten: Vec<TempPath>,
}

impl OwnWords {
    /// Takes our options out of `arguments` and of the response files that they name.
    ///
    /// # Errors
    /// When a response file without them cannot be written.
    pub(crate) fn take(arguments: Vec<OsString>, directory: &Path) -> Result<Self> {
        let mut taken = Self { own_words: Vec::new(), linker_arguments: Vec::new(), rewritten: Vec::new() };
        for argument in arguments {
            if is_own(&argument) {
                taken.own_words.push(argument);
                continue;
            }
            let inner = if argument.as_bytes().starts_with(b"@") {
                expanded(std::slice::from_ref(&argument), directory)
            } else {
                Vec::new()
            };
            // A pipe is empty after it was read.
            let is_to_be_written = inner.iter().any(|word| is_own(word))
                || argument.as_bytes().starts_with(b"@") && is_pipe(&argument, directory);
            if !is_to_be_written {
                taken.linker_arguments.push(argument);
                continue;
            }
            let (own, rest): (Vec<_>, Vec<_>) = inner.into_iter().partition(|word| is_own(word));
            taken.own_words.extend(own);
            let (argument, file) = written(&rest)?;
            taken.linker_arguments.push(argument);
            taken.rewritten.push(file);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn words_are_split_as_compilers_do() {
        let text = b"-o 'a b'\\ c \"d\\\"e\"\n\t@f '' x\\";
        assert_eq!(split(text), ["-o", "a b c", "d\"e", "@f", "", "x"]);
    }

    #[test]
    fn own_options_are_taken_from_files_in_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("outer"), "a.o @inner\n").unwrap();
        std::fs::write(at("inner"), "--reorder-strict 'b c.o'").unwrap();
        std::fs::write(at("plain"), "d.o").unwrap();
        let arguments = ["@outer", "@plain", "@missing"].map(OsString::from).to_vec();
        let taken = OwnWords::take(arguments, directory.path()).unwrap();
        assert_eq!(taken.own_words, ["--reorder-strict"]);
        assert_eq!(taken.linker_arguments[1..], ["@plain", "@missing"].map(OsString::from));
        assert_eq!(
            expanded(&taken.linker_arguments, directory.path()),
            ["a.o", "b c.o", "d.o", "@missing"].map(OsString::from)
        );
        std::fs::write(at("loop"), "@loop").unwrap();
        assert_eq!(expanded(&["@loop".into()], directory.path()), ["@loop"]);
    }

    proptest! {
        #[test]
        fn what_is_joined_splits_into_the_same(words in prop::collection::vec(prop::collection::vec(1u8.., 0..20), 0..8)) {
            let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
            prop_assert_eq!(split(&joined(&words)), words);
        }
    }
}
