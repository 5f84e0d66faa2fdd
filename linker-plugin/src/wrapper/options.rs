//! The wrapper's own options.
//!
//! One definition: each option is `--reorder-NAME=VALUE` on the linker's command line, `REORDER_NAME` in the
//! environment and `NAME = VALUE` in `reorder.toml`. The command line wins over `REORDER_OPTIONS`, which wins over
//! the other variables, and these over the file. Linkers have no option that starts with `--reorder-`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{ArgAction, CommandFactory, Parser, ValueEnum};
use reorder_layout::arguments::LayoutArguments;
use reorder_layout::last_link::CACHE_FOLDER;
use reorder_layout::{LayoutRequest, Memory};
use reorder_relocate::debug::DebugPolicy;

use super::environment::Environment;

/// The prefix of our options.
pub(crate) const PREFIX: &str = "--reorder-";
/// Options that are actions, not settings. `REORDER_LINKS` is a natural name for the printed folder.
pub(super) const COMMAND_LINE_ONLY: [&str; 2] = ["links", "man"];

/// How the order gets into the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Through the linker where it takes an order, else in the finished image
    #[default]
    Auto,
    /// Through the linker
    Order,
    /// In the finished image: one link, ELF for x86-64 or AArch64 only
    PostLink,
    /// Not at all: the real linker runs as if it had been called directly
    Off,
}

/// What happens to debug information when functions are moved in the finished image.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DebugChoice {
    /// Bring it up to date
    Update,
    /// Empty the debug sections
    Drop,
    /// Leave them: debuggers will show wrong lines
    KeepStale,
}

impl From<DebugChoice> for DebugPolicy {
    fn from(choice: DebugChoice) -> Self {
        match choice {
            DebugChoice::Update => Self::Update,
            DebugChoice::Drop => Self::Drop,
            DebugChoice::KeepStale => Self::KeepStale,
        }
    }
}

const ABOUT: &str = "\
Stands in for a linker: runs the real one, and orders the functions of what it links by recorded runs.

Each option is written --reorder-NAME=VALUE among the linker's arguments (for a compiler: -Wl,--reorder-NAME=VALUE), \
REORDER_NAME=VALUE in the environment, or NAME = VALUE under [link] in reorder.toml. All other arguments are the \
linker's and are passed on as they are.";

/// The options, without their prefix.
#[derive(Clone, Debug, Parser)]
#[command(name = "reorder-ld", version, about = "Stands in for a linker and orders functions", long_about = ABOUT, max_term_width = 110, args_override_self = true)]
pub(crate) struct Options {
    /// Trace or profile files of any system that `reorder` reads, directories of them, or @FILE
    #[arg(long, value_name = "TRACES", action = ArgAction::Append)]
    pub(crate) traces: Vec<PathBuf>,
    /// A file that the traces need to be understood, such as the instrumented program
    #[arg(long, value_name = "FILE", action = ArgAction::Append)]
    pub(crate) companion: Vec<PathBuf>,
    /// Order only what is linked under this name [default: what the traces were recorded for]
    #[arg(long, value_name = "NAME", action = ArgAction::Append)]
    pub(crate) program: Vec<OsString>,
    /// The file name that the program had when it was recorded [default: the output's]
    #[arg(long, value_name = "NAME")]
    pub(crate) recorded_as: Option<OsString>,
    /// The real linker: a path or a name such as ld.lld [default: by the name that this program is called by]
    #[arg(long, value_name = "LINKER")]
    pub(crate) linker: Option<OsString>,
    /// The compiler that links when this program is called as one [default: cc]
    #[arg(long, value_name = "COMPILER")]
    pub(crate) driver: Option<OsString>,
    /// How the order gets into the output
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub(crate) mode: Mode,
    #[command(flatten)]
    pub(super) layout: LayoutArguments,
    /// Order data as well, so that similar contents are next to each other (lld for ELF)
    #[arg(long)]
    pub(crate) data: bool,
    /// What happens to debug information in the mode post-link
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) debug: Option<DebugChoice>,
    /// Fail the link when it cannot be ordered, instead of delivering it without an order
    #[arg(long)]
    pub(crate) strict: bool,
    /// Warn when less of the traces is found
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(..=100))]
    pub(crate) warn_below: u8,
    /// Fail the link when less of the traces is found
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(..=100))]
    pub(crate) fail_below: Option<u8>,
    /// Write what was done to this file, as JSON; also why a link is not ordered
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Where orders of earlier links are kept, or `off` [default: reorder/links in the user's cache directory]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) cache: Option<PathBuf>,
    /// Read this file instead of the nearest reorder.toml at or above the working directory; `off` reads none
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print only warnings and errors
    #[arg(long, overrides_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print what is done and why
    #[arg(long, overrides_with = "quiet")]
    pub(crate) verbose: bool,
    /// Make a directory of links to this program, one for each name of a linker, and print its path
    #[arg(long, value_name = "DIRECTORY", num_args = 0..=1, require_equals = true)]
    pub(crate) links: Option<Option<PathBuf>>,
    /// Print the manual page
    #[arg(long)]
    pub(crate) man: bool,
}

impl Options {
    /// The kind of layout; `default` is the memory for an output of this kind unless an option names another.
    #[must_use]
    pub(crate) fn request(&self, default: Memory) -> LayoutRequest {
        self.layout.request(default)
    }

    /// Where earlier links are remembered; `None` for no cache.
    #[must_use]
    pub(crate) fn cache_directory(&self, environment: &Environment) -> Option<PathBuf> {
        match &self.cache {
            Some(chosen) => (chosen != Path::new("off")).then(|| chosen.clone()),
            None => Some(environment.cache_directory()?.join(CACHE_FOLDER)),
        }
    }
}

/// The definition of all options, for the environment and `reorder.toml`.
pub(super) fn definition() -> clap::Command {
    Options::command()
}

/// The definition with the options spelled as the user must write them on a command line, for the manual.
pub(super) fn spelled_definition() -> clap::Command {
    let mut definition = definition();
    // This adds help and version, which are spelled alike.
    definition.build();
    definition.mut_args(|argument| match argument.get_long().map(|name| format!("reorder-{name}")) {
        Some(name) => argument.short(None).long(name),
        None => argument,
    })
}

/// Whether an argument is meant for the wrapper.
#[must_use]
pub(crate) fn is_own(argument: &OsStr) -> bool {
    argument.as_bytes().starts_with(PREFIX.as_bytes())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn the_manual_spells_every_option_as_it_is_written() {
        let manual = reorder_report::manual_page(&spelled_definition()).unwrap();
        let manual = String::from_utf8(manual).unwrap().replace('\\', "");
        let names = definition();
        for name in
            names.get_arguments().filter_map(|argument| argument.get_long()).chain(["help", "version"])
        {
            assert!(manual.contains(&format!("--reorder-{name}")), "{name}: {manual}");
        }
        assert!(!manual.contains("-h,") && !manual.contains("--traces"), "{manual}");
    }
}
