//! One call's options, from all their sources, and what is left for the linker.
//!
//! Takes the arguments, the environment and the configuration; gives [`Options`]. A name that a nearer source gives hides it
//! in the others: command line, `REORDER_OPTIONS`, other variables, `reorder.toml`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::Parser;
use reorder_base::error::{Error, Result};
use tempfile::TempPath;

use super::configuration::Configuration;
use super::options::{COMMAND_LINE_ONLY, Options, PREFIX, definition, is_own, is_switch, word};
use super::response_files::OwnWords;

/// Options from everywhere, and the linker's own arguments.
#[derive(Debug)]
pub(crate) struct Request {
    /// The wrapper's options.
    pub(crate) options: Options,
    /// The options as they were written on the command line: what a driver hands on to the linker.
    pub(crate) own_words: Vec<OsString>,
    /// All other arguments, in their order.
    pub(crate) linker_arguments: Vec<OsString>,
    /// What the user should know about where options come from.
    pub(crate) notes: Vec<String>,
    /// Response files that replace those with our options; they are removed when this value is dropped.
    rewritten: Vec<TempPath>,
}

impl Request {
    /// Takes the options out of `arguments` (without the program's name) and adds those of the environment and of
    /// `reorder.toml`, which may depend on the name that `program_of` the linker's arguments is linked.
    ///
    /// # Errors
    /// clap's, for options that do not exist and for `--reorder-help`; a configuration that cannot be read.
    pub(crate) fn new(
        arguments: Vec<OsString>,
        variables: &BTreeMap<OsString, OsString>,
        directory: &Path,
        program_of: impl FnOnce(&[OsString]) -> Option<OsString>,
    ) -> std::result::Result<Self, RequestError> {
        let OwnWords { own_words, linker_arguments, rewritten } = OwnWords::take(arguments, directory)?;
        let handed_on = handed_on(variables)?;
        let own: Vec<OsString> = own_words.iter().map(without_prefix).collect();
        // Repeatable options would add up; so a name in a nearer source hides it in the others.
        let mut names = names_of(own.iter());
        let mut handed_on: Vec<OsString> = handed_on.iter().map(without_prefix).collect();
        handed_on.retain(|word| !names.contains(&name_of(word)));
        names.extend(names_of(handed_on.iter()));
        let FromVariables { words: environment, names: of_variables } =
            words_of_environment(variables, &names);
        names.extend(of_variables);
        let chosen = || environment.iter().chain(&handed_on).chain(&own);
        let file = chosen().rev().find_map(|word| value_of(word, "--config"));
        let configuration = Configuration::find(file.as_deref(), directory)?;
        let program = program_of(&linker_arguments);
        let configured = configuration.words(program.as_deref(), &definition(), &names)?;
        let words = std::iter::once(OsString::from("reorder-ld"));
        let options = Options::try_parse_from(words.chain(configured).chain(chosen().cloned()))
            .map_err(RequestError::Options)?;
        let notes = configuration.note.into_iter().collect();
        Ok(Self { options, own_words, linker_arguments, notes, rewritten })
    }
}

impl Request {
    /// Whether the arguments name files that are removed with this value.
    #[must_use]
    pub(crate) fn has_own_files(&self) -> bool {
        !self.rewritten.is_empty()
    }
}

/// Why there are no options.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// Mistakes in options, or a wish for help.
    Options(clap::Error),
    /// A configuration that cannot be read.
    Other(Error),
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

fn without_prefix(argument: &OsString) -> OsString {
    let rest = argument.as_bytes().get(PREFIX.len()..).unwrap_or_default();
    OsString::from_vec([b"--", rest].concat())
}

/// `REORDER_OPTIONS`: words as on the command line, quoted as a shell does it.
fn handed_on(variables: &BTreeMap<OsString, OsString>) -> Result<Vec<OsString>> {
    let Some(text) = variables.get(OsStr::new("REORDER_OPTIONS")) else { return Ok(Vec::new()) };
    let words = shlex::bytes::split(text.as_bytes()).ok_or_else(|| {
        Error::usage("REORDER_OPTIONS has a quote without its end").with_hint("quote as in a shell")
    })?;
    words
        .into_iter()
        .map(OsString::from_vec)
        .map(|word| match is_own(&word) {
            true if COMMAND_LINE_ONLY.contains(&name_of(&without_prefix(&word)).as_str()) => {
                Err(Error::usage(format!("REORDER_OPTIONS holds {}", word.display()))
                    .with_hint("this is for the command line only"))
            }
            true => Ok(word),
            false => Err(Error::usage(format!(
                "REORDER_OPTIONS holds {}, which does not start with {PREFIX}",
                word.display()
            ))
            .with_hint("write each option as on the command line: --reorder-NAME=VALUE")),
        })
        .collect()
}

/// One word for each `REORDER_NAME` that is an option and not given on the command line.
fn words_of_environment(variables: &BTreeMap<OsString, OsString>, given: &[String]) -> FromVariables {
    let (mut words, mut names) = (Vec::new(), Vec::new());
    for option in definition().get_arguments().filter_map(|option| option.get_long()) {
        let variable = format!("REORDER_{}", option.replace('-', "_").to_uppercase());
        let Some(value) = variables.get(OsStr::new(&variable)).filter(|value| !value.is_empty()) else {
            continue;
        };
        if given.iter().any(|name| name == option) || COMMAND_LINE_ONLY.contains(&option) {
            continue;
        }
        names.push(option.to_owned());
        match option {
            "traces" | "companion" => {
                words.extend(std::env::split_paths(value).map(|path| word(option, path.as_os_str())))
            }
            _ if is_switch(option) => {
                if !matches!(value.as_bytes(), b"0" | b"false" | b"no") {
                    words.push(format!("--{option}").into());
                }
            }
            _ => words.push(word(option, value)),
        }
    }
    FromVariables { words, names }
}

/// What variables say.
struct FromVariables {
    words: Vec<OsString>,
    /// The options that they set; no word says that a switch is off.
    names: Vec<String>,
}

/// The names before `=`.
fn names_of<'words>(words: impl Iterator<Item = &'words OsString>) -> Vec<String> {
    words.map(|word| name_of(word)).collect()
}

fn name_of(word: &OsStr) -> String {
    let text = word.to_string_lossy().into_owned();
    let text = text.trim_start_matches('-');
    text.split('=').next().unwrap_or(text).to_owned()
}

fn value_of(word: &OsStr, option: &str) -> Option<PathBuf> {
    let value = word.as_bytes().strip_prefix(option.as_bytes())?.strip_prefix(b"=")?;
    Some(PathBuf::from(OsStr::from_bytes(value)))
}

#[cfg(test)]
mod tests {
    use reorder_layout::Memory;

    use super::*;

    fn request(arguments: &[&str], variables: &[(&str, &str)]) -> std::result::Result<Request, RequestError> {
        let directory = tempfile::tempdir().unwrap();
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Request::new(arguments.iter().map(OsString::from).collect(), &variables, directory.path(), |_| None)
    }

    #[test]
    fn the_linkers_arguments_stay_as_they_are() {
        let request =
            request(&["-o", "a", "--reorder-traces=t", "--reorder", "-lm", "--reorder-strict"], &[]).unwrap();
        assert_eq!(request.linker_arguments, ["-o", "a", "--reorder", "-lm"]);
        assert_eq!(request.options.traces, [PathBuf::from("t")]);
        assert!(request.options.strict);
    }

    #[test]
    fn the_command_line_wins_over_the_environment() {
        let variables = [
            ("REORDER_TRACES", "one:two"),
            ("REORDER_MEMORY", "16k"),
            ("REORDER_STRICT", "0"),
            ("REORDER_DATA", "1"),
        ];
        let here = request(&["--reorder-memory=4k"], &variables).unwrap();
        assert_eq!(here.options.traces, ["one", "two"].map(PathBuf::from));
        assert_eq!(here.options.request(Memory::default()).memory, Memory::Pages4K);
        assert!(!here.options.strict && here.options.data);
        let there = request(&["--reorder-traces=three"], &variables).unwrap();
        assert_eq!(there.options.traces, [PathBuf::from("three")]);
    }

    #[test]
    fn a_driver_hands_options_on() {
        let handed = [("REORDER_OPTIONS", "--reorder-traces='a b' --reorder-seed=3")];
        let request_ = request(&["--reorder-strict"], &handed).unwrap();
        assert_eq!(request_.options.traces, [PathBuf::from("a b")]);
        assert_eq!(request_.options.request(Memory::default()).seed, 3);
        assert!(request(&[], &[("REORDER_OPTIONS", "-o x")]).is_err());
        assert!(request(&[], &[("REORDER_OPTIONS", "'")]).is_err());
    }

    #[test]
    fn nearer_sources_win() {
        let variables = [
            ("REORDER_OPTIONS", "--reorder-seed=2 --reorder-traces=handed --reorder-quiet"),
            ("REORDER_SEED", "1"),
            ("REORDER_TRACES", "variable"),
            ("REORDER_VERBOSE", "1"),
        ];
        let handed = request(&[], &variables).unwrap().options;
        assert_eq!(
            (handed.request(Memory::default()).seed, handed.traces),
            (2, vec![PathBuf::from("handed")])
        );
        assert!(handed.quiet && !handed.verbose);
        let own = request(&["--reorder-seed=3", "--reorder-traces=own", "--reorder-verbose"], &variables)
            .unwrap()
            .options;
        assert_eq!((own.request(Memory::default()).seed, own.traces), (3, vec![PathBuf::from("own")]));
        assert!(own.verbose && !own.quiet);
    }

    #[test]
    fn files_are_overruled() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("one.toml", "[link]\nstrict = true\nseed = 1\nverbose = true\n");
        write("two.toml", "[link]\nseed = 2\n");
        let of = |arguments: &[&str], variables: &[(&str, &str)]| {
            let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let arguments = arguments.iter().map(OsString::from).collect();
            Request::new(arguments, &variables, directory.path(), |_| None).unwrap().options
        };
        let one = ("REORDER_CONFIG", "one.toml");
        assert!(of(&[], &[one]).strict);
        for off in ["0", "false", "no"] {
            assert!(!of(&[], &[one, ("REORDER_STRICT", off)]).strict, "{off}");
        }
        assert!(of(&["--reorder-quiet"], &[one]).quiet);
        let two = ("REORDER_OPTIONS", "--reorder-config=two.toml");
        assert_eq!(of(&[], &[one, two]).request(Memory::default()).seed, 2);
        let both = ["--reorder-config=two.toml", "--reorder-config=one.toml"];
        assert_eq!(of(&both, &[two]).request(Memory::default()).seed, 1);
    }

    #[test]
    fn links_are_for_the_command_line() {
        assert!(request(&["--reorder-links"], &[]).unwrap().options.links.is_some());
        assert!(request(&["--reorder-man"], &[]).unwrap().options.man);
        assert!(request(&["-o", "a"], &[("REORDER_LINKS", "/tmp/links")]).unwrap().options.links.is_none());
        assert!(request(&[], &[("REORDER_OPTIONS", "--reorder-links=x")]).is_err());
    }

    #[test]
    fn unknown_options_are_mistakes() {
        assert!(matches!(request(&["--reorder-tarces=t"], &[]), Err(RequestError::Options(_))));
    }
}
