//! What the user asks of the wrapper itself.
//!
//! One definition: each option is `--reorder-NAME=VALUE` on the linker's command line, `REORDER_NAME` in the
//! environment and `NAME = VALUE` in `reorder.toml`. The command line wins over `REORDER_OPTIONS`, which wins over
//! the other variables, and these over the file. Linkers have no option that starts with `--reorder-`.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::{ArgAction, CommandFactory, Parser, ValueEnum};
use reorder::cli::layout_args::LayoutArguments;
use reorder::error::{Error, Result};
use reorder::relocate::debug::DebugPolicy;
use tempfile::TempPath;

use super::configuration::Configuration;
use super::response_files::OwnWords;

/// What starts an option of ours.
pub const PREFIX: &str = "--reorder-";
/// Options that are no settings but something to do. `REORDER_LINKS` is a natural name for the printed folder.
pub(super) const COMMAND_LINE_ONLY: [&str; 1] = ["links"];

/// How the order gets into the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Through the linker where it takes an order, else in the finished image
    #[default]
    Auto,
    /// Through the linker
    Order,
    /// In the finished image: one link, x86-64 ELF only
    PostLink,
    /// Not at all: the real linker runs as if it had been called itself
    Off,
}

/// What happens to debug information when functions are moved in the finished image.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum DebugChoice {
    /// Empty the debug sections
    Drop,
    /// Leave them: debuggers will show wrong lines
    KeepStale,
}

impl From<DebugChoice> for DebugPolicy {
    fn from(choice: DebugChoice) -> Self {
        match choice {
            DebugChoice::Drop => Self::Drop,
            DebugChoice::KeepStale => Self::KeepStale,
        }
    }
}

const ABOUT: &str = "\
Stands in for a linker: runs the real one, and orders the functions of what it links by recorded starts.

Each option is written --reorder-NAME=VALUE among the linker's arguments (for a compiler: -Wl,--reorder-NAME=VALUE), \
REORDER_NAME=VALUE in the environment, or NAME = VALUE under [link] in reorder.toml. All other arguments are the \
linker's and are passed on as they are.";

/// The options, without their prefix.
#[derive(Clone, Debug, Parser)]
#[command(name = "reorder-ld", version, about = "Stands in for a linker and orders functions", long_about = ABOUT, max_term_width = 110, args_override_self = true)]
pub struct Options {
    /// Trace or profile files of any system that `reorder` reads, directories of them, or @FILE
    #[arg(long, value_name = "PATH", action = ArgAction::Append)]
    pub traces: Vec<PathBuf>,
    /// A file that the traces need to be understood, such as the instrumented program
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    pub companion: Vec<PathBuf>,
    /// Order only what is linked under this name [default: what the traces were recorded for]
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    pub program: Vec<OsString>,
    /// The file name that the program had when it was recorded [default: the output's]
    #[arg(long, value_name = "NAME")]
    pub recorded_as: Option<OsString>,
    /// The real linker: a path or a name such as ld.lld [default: by the name that this program is called by]
    #[arg(long, value_name = "LINKER")]
    pub linker: Option<OsString>,
    /// The compiler that links when this program is called as one [default: cc]
    #[arg(long, value_name = "COMPILER")]
    pub driver: Option<OsString>,
    /// How the order gets into the output
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub mode: Mode,
    #[command(flatten)]
    layout: LayoutArguments,
    /// Order data as well, so that it compresses better (lld and Apple's linkers)
    #[arg(long)]
    pub data: bool,
    /// What happens to debug information in the mode post-link
    #[arg(long, value_enum, value_name = "HOW")]
    pub debug: Option<DebugChoice>,
    /// Fail the link when it cannot be ordered, instead of delivering it as it is
    #[arg(long)]
    pub strict: bool,
    /// Warn when less of the traces is found
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(..=100))]
    pub warn_below: u8,
    /// Fail the link when less of the traces is found
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(..=100))]
    pub fail_below: Option<u8>,
    /// Write what was done to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Where orders of earlier links are kept, or `off` [default: reorder/links in the user's cache directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub cache: Option<PathBuf>,
    /// Read this file instead of the nearest reorder.toml at or above the working directory; `off` reads none
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say nothing but warnings and errors
    #[arg(long, overrides_with = "verbose")]
    pub quiet: bool,
    /// Say what is done and why
    #[arg(long, overrides_with = "quiet")]
    pub verbose: bool,
    /// Make a directory of links to this program, one for each name of a linker, and print its path
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, require_equals = true)]
    pub links: Option<Option<PathBuf>>,
}

impl Options {
    /// The kind of layout.
    #[must_use]
    pub fn request(&self) -> reorder::layout::LayoutRequest {
        self.layout.request()
    }

    /// Where earlier links are remembered, if anywhere.
    #[must_use]
    pub fn cache_directory(&self, variables: &BTreeMap<OsString, OsString>) -> Option<PathBuf> {
        if let Some(chosen) = &self.cache {
            return (chosen != Path::new("off")).then(|| chosen.clone());
        }
        let variable = |name: &str| variables.get(OsStr::new(name)).filter(|value| !value.is_empty());
        let base = variable("XDG_CACHE_HOME")
            .map(PathBuf::from)
            .or_else(|| variable("HOME").map(|home| Path::new(home).join(".cache")))?;
        Some(base.join("reorder/links"))
    }
}

/// Options from everywhere, and the linker's own arguments.
#[derive(Debug)]
pub struct Request {
    /// What is asked of the wrapper.
    pub options: Options,
    /// The options as they were written on the command line: what a driver hands on to the linker.
    pub own_words: Vec<OsString>,
    /// All other arguments, in their order.
    pub linker_arguments: Vec<OsString>,
    /// What the user should know about where options come from.
    pub notes: Vec<String>,
    /// Response files that stand in for some that held options of ours; they vanish with this value.
    rewritten: Vec<TempPath>,
}

impl Request {
    /// Takes the options out of `arguments` (without the program's name) and adds those of the environment and of
    /// `reorder.toml`, which may depend on the name that `program_of` the linker's arguments is linked.
    ///
    /// # Errors
    /// clap's, for options that do not exist and for `--reorder-help`; a configuration that cannot be read.
    pub fn new(
        arguments: Vec<OsString>,
        variables: &BTreeMap<OsString, OsString>,
        directory: &Path,
        program_of: impl FnOnce(&[OsString]) -> Option<OsString>,
    ) -> std::result::Result<Self, RequestError> {
        let OwnWords { own_words, linker_arguments, rewritten } = OwnWords::take(arguments, directory)?;
        let handed_on = handed_on(variables)?;
        let own: Vec<OsString> = own_words.iter().map(without_prefix).collect();
        // What can be given several times would add up; so a name that a nearer source gives hides it in the others.
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
    /// Whether the arguments name files that vanish with this value.
    #[must_use]
    pub fn has_own_files(&self) -> bool {
        !self.rewritten.is_empty()
    }
}

/// Why there are no options.
#[derive(Debug)]
pub enum RequestError {
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

/// The definition of all options, for the environment and `reorder.toml`.
pub(super) fn definition() -> clap::Command {
    Options::command()
}

/// Whether an argument is meant for the wrapper.
#[must_use]
pub fn is_own(argument: &OsStr) -> bool {
    argument.as_bytes().starts_with(PREFIX.as_bytes())
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

/// Whether an option takes no value.
pub(super) fn is_switch(option: &str) -> bool {
    definition().get_arguments().any(|argument| {
        argument.get_long() == Some(option) && matches!(argument.get_action(), ArgAction::SetTrue)
    })
}

/// `--NAME=VALUE`.
pub(super) fn word(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(format!("--{name}="));
    word.push(value);
    word
}

/// The names in front of `=`.
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
    use super::*;

    fn request(arguments: &[&str], variables: &[(&str, &str)]) -> std::result::Result<Request, RequestError> {
        let directory = tempfile::tempdir().unwrap();
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Request::new(arguments.iter().map(OsString::from).collect(), &variables, directory.path(), |_| None)
    }

    #[test]
    fn the_definition_is_consistent() {
        definition().debug_assert();
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
        assert_eq!(here.options.request().memory, reorder::layout::Memory::Pages4K);
        assert!(!here.options.strict && here.options.data);
        let there = request(&["--reorder-traces=three"], &variables).unwrap();
        assert_eq!(there.options.traces, [PathBuf::from("three")]);
    }

    #[test]
    fn a_driver_hands_options_on() {
        let handed = [("REORDER_OPTIONS", "--reorder-traces='a b' --reorder-seed=3")];
        let request_ = request(&["--reorder-strict"], &handed).unwrap();
        assert_eq!(request_.options.traces, [PathBuf::from("a b")]);
        assert_eq!(request_.options.request().seed, 3);
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
        assert_eq!((handed.request().seed, handed.traces), (2, vec![PathBuf::from("handed")]));
        assert!(handed.quiet && !handed.verbose);
        let own = request(&["--reorder-seed=3", "--reorder-traces=own", "--reorder-verbose"], &variables)
            .unwrap()
            .options;
        assert_eq!((own.request().seed, own.traces), (3, vec![PathBuf::from("own")]));
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
        assert_eq!(of(&[], &[one, two]).request().seed, 2);
        let both = ["--reorder-config=two.toml", "--reorder-config=one.toml"];
        assert_eq!(of(&both, &[two]).request().seed, 1);
    }

    #[test]
    fn links_are_for_the_command_line() {
        assert!(request(&["--reorder-links"], &[]).unwrap().options.links.is_some());
        assert!(request(&["-o", "a"], &[("REORDER_LINKS", "/tmp/links")]).unwrap().options.links.is_none());
        assert!(request(&[], &[("REORDER_OPTIONS", "--reorder-links=x")]).is_err());
    }

    #[test]
    fn unknown_options_are_mistakes() {
        assert!(matches!(request(&["--reorder-tarces=t"], &[]), Err(RequestError::Options(_))));
    }
}
