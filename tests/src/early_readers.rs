//! Finds readers that end before their pipe is empty, such as `grep -q` and `head`.
//!
//! Under `pipefail` a pipeline fails when its writer is still writing at that moment and gets SIGPIPE (status 141): on some
//! runs and not on others. Takes lines of a shell; gives the first such reader. Equivalents that read to the end:
//! `grep … > /dev/null`, `sed -n 1p`, `find … -print -quit`.

use std::iter::Peekable;
use std::str::Chars;

/// The first command after a `|` in `script` that may not read all its input, with its words.
///
/// Quotes are understood within a line. Readers that end early because of an error in their input are not detected.
pub fn early_reader(script: &str) -> Option<String> {
    // A pipeline may continue on the next line.
    let joined = script.replace("\\\n", " ").replace("|\n", "| ");
    joined.lines().find_map(|line| {
        let readers = readers(line);
        readers.into_iter().find(|words| is_early(words)).map(|words| words.join(" "))
    })
}

/// The words of each command of `line` that reads from a pipe.
fn readers(line: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = line.chars().peekable();
    let mut quotes = Quotes::default();
    let mut before = ' ';
    while let Some(character) = rest.next() {
        if character == '\\' {
            rest.next();
        } else if character == '#' && before.is_whitespace() && !quotes.is_open() {
            break;
        } else if !quotes.hides(character, before) && character == '|' && rest.next_if_eq(&'|').is_none() {
            rest.next_if_eq(&'&');
            found.push(words(&mut rest.clone()));
        }
        before = character;
    }
    found
}

/// Which quotation marks are open.
#[derive(Default)]
struct Quotes {
    is_single: bool,
    is_double: bool,
    /// Commands in double quotes, `"$(…)"`, have quotation marks of their own.
    commands: usize,
}

impl Quotes {
    fn is_open(&self) -> bool {
        self.is_single || self.is_double
    }

    /// Updates the state with `character`; whether no operator of the shell can be here.
    fn hides(&mut self, character: char, before: char) -> bool {
        let is_text = self.is_double && self.commands == 0;
        match character {
            '\'' if !is_text => self.is_single = !self.is_single,
            _ if self.is_single => {}
            '"' if self.commands == 0 => self.is_double = !self.is_double,
            '(' if self.is_double && (before == '$' || self.commands > 0) => self.commands += 1,
            ')' => self.commands = self.commands.saturating_sub(1),
            _ => {}
        }
        self.is_single || self.is_double && self.commands == 0
    }
}

/// The words up to the next operator, without their quotation marks.
fn words(rest: &mut Peekable<Chars<'_>>) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for character in rest {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, '|' | ';' | '&' | ')') => break,
            (None, ' ' | '\t') => words.push(String::new()),
            _ => words.iter_mut().last().into_iter().for_each(|word| word.push(character)),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Whether the command may end before it has read everything.
fn is_early(words: &[String]) -> bool {
    let Some((command, arguments)) = words.split_first() else { return false };
    let scripts = || arguments.iter().filter(|word| !word.starts_with('-'));
    match command.as_str() {
        "head" => !is_negative(&arguments.concat()),
        "grep" | "egrep" | "fgrep" | "zgrep" => arguments.iter().any(|word| ends_grep(word)),
        "sed" => scripts().any(|script| quits(script)),
        "awk" | "gawk" | "mawk" => scripts().any(|script| script.contains("exit")),
        "read" | "true" | ":" => true,
        _ => false,
    }
}

/// `-5` after `-n`: all but the last five, for which the reader must read everything.
fn is_negative(arguments: &str) -> bool {
    ["-n-", "-c-", "--lines=-", "--bytes=-"].iter().any(|start| arguments.starts_with(start))
}

fn ends_grep(word: &str) -> bool {
    if let Some(long) = word.strip_prefix("--") {
        return ["quiet", "silent", "max-count", "files-with-matches"]
            .iter()
            .any(|name| long.starts_with(name));
    }
    // In a cluster of options, the letters after one that takes a value are the value.
    let letters = word.strip_prefix('-').unwrap_or_default().split(['e', 'f', 'A', 'B', 'C']).next();
    letters.unwrap_or_default().contains(['q', 'l', 'm'])
}

/// Whether a script of sed has the command `q` or `Q`.
fn quits(script: &str) -> bool {
    let is_end = |after: &str| after.is_empty() || after.starts_with([';', '}', ' ']);
    let begins = |before: &str| {
        before.is_empty()
            || before.ends_with([';', '{', ' ', '/', '$'])
            || before.ends_with(|last: char| last.is_ascii_digit())
    };
    script.match_indices(['q', 'Q']).any(|(at, _)| begins(&script[..at]) && is_end(&script[at + 1..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::workspace;

    #[test]
    fn readers_that_end_early_are_found() {
        for line in [
            "readelf -SW image | grep -q debug",
            "test \"$(nm a | head -n 1)\" = x",
            "! gdb -batch 2>&1 | grep -Eqx 'a|b'",
            "cat a |\n  grep --max-count=1 b",
            "sort a | sed '3q'",
            "sort a | sed -n '1{p;q}'",
            "nm a | awk '{ print; exit }'",
            "a | b 'x|y' \\\n | head",
            "a |& grep -m1 b",
        ] {
            assert!(early_reader(line).is_some(), "{line}");
        }
    }

    #[test]
    fn readers_that_read_all_are_not() {
        for line in [
            "grep -q x file || head file",
            "readelf -SW image | grep x > /dev/null",
            "readelf -SW image | grep -c '| head'",
            "echo a | sed -n 1p # | head",
            "bash -c 'compgen -b | head -20'",
            "sort a | head -n -1",
            "sort a | sed 's/q/x/' | grep -e q",
            "echo \"it's | grep\" && grep -q x y",
            "nm a | awk -F'|' '{ print $1 }'",
        ] {
            assert_eq!(early_reader(line), None, "{line}");
        }
    }

    /// Scripts of the repository, and steps of GitHub's runner, which sets `pipefail`.
    #[test]
    fn no_script_has_one() {
        let root = workspace::root();
        let mut files = vec![root.join("action.yml")];
        for folder in [
            "scripts",
            "recipes",
            "tests/programs",
            "tests/distribution",
            "tests/suites",
            "tests/macho",
            ".ci",
        ] {
            collect(&root.join(folder), &mut files);
        }
        let mut found = Vec::new();
        for file in files {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            let is_python = file.extension().is_some_and(|ending| ending == "py")
                || text.starts_with("#!/usr/bin/env python");
            if let Some(reader) = early_reader(&text).filter(|_| !is_python) {
                found.push(format!("{}: {reader}", file.display()));
            }
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() { collect(&path, files) } else { files.push(path) }
        }
    }
}
