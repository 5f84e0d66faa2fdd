//! Flags that every command takes.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use reorder_report::Format;

/// When messages on stderr are coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The flags that every command takes.
#[derive(Args, Clone, Debug)]
pub struct SharedArguments {
    /// Format of the results on stdout
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORM",
        default_value = "text",
        help_heading = "Shared options"
    )]
    pub format: Format,
    /// Print only results and errors
    #[arg(long, short, global = true, conflicts_with = "verbose", help_heading = "Shared options")]
    pub quiet: bool,
    /// Print more messages; give it twice for details
    #[arg(long, short, global = true, action = clap::ArgAction::Count, help_heading = "Shared options")]
    pub verbose: u8,
    /// Colour messages; NO_COLOR is respected
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "WHEN",
        default_value = "auto",
        help_heading = "Shared options"
    )]
    pub color: ColorChoice,
    /// Number of threads, at most 1024; 0 uses all processors. Results do not depend on it
    #[arg(
        long,
        global = true,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u16).range(..=1024),
        help_heading = "Shared options"
    )]
    pub threads: u16,
    /// Print how long each phase took
    #[arg(long, global = true, help_heading = "Shared options")]
    pub timings: bool,
}

impl SharedArguments {
    /// Whether messages on stderr are coloured: an explicit choice wins over `NO_COLOR`, which wins over the terminal.
    pub(crate) fn colors_talk(&self) -> bool {
        match self.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                    && std::io::stderr().is_terminal()
            }
        }
    }
}
