//! `reorder man`: manual pages, generated from the definition of the command line.

use std::path::PathBuf;

use clap::Args;

use crate::cli::context::Context;
use crate::exit_status::ExitStatus;
use reorder_base::error::{Error, Result};
use reorder_report::manual_page;

const EXAMPLES: &str = "\
Examples:
  reorder man | man -l -
  reorder man -o ~/.local/share/man/man1";

/// Print the manual page, or write one page per command
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct ManArguments {
    /// Write reorder.1 and a page per command into this directory
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints or writes the pages.
///
/// # Errors
/// When stdout or the directory cannot be written.
pub fn run(arguments: &ManArguments, context: &Context) -> Result<ExitStatus> {
    // `build` gives the subcommands the shared flags and their full names, such as `reorder-record`.
    let mut definition = super::definition();
    definition.build();
    match &arguments.output {
        None => context.print_bytes(&manual_page(&definition)?)?,
        Some(directory) => {
            std::fs::create_dir_all(directory).map_err(|error| Error::io(directory, error))?;
            for (name, page) in pages(&definition)? {
                let path = directory.join(format!("{name}.1"));
                std::fs::write(&path, page).map_err(|error| Error::io(&path, error))?;
            }
        }
    }
    Ok(ExitStatus::Success)
}

/// A page for `definition` and one for each command below it, by page name.
fn pages(definition: &clap::Command) -> Result<Vec<(String, Vec<u8>)>> {
    let name = definition.get_display_name().unwrap_or(definition.get_name());
    let mut pages = vec![(name.to_owned(), manual_page(definition)?)];
    for command in definition.get_subcommands().filter(|command| command.get_name() != "help") {
        pages.extend(self::pages(command)?);
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_that_shows_its_flags() {
        let mut definition = crate::cli::definition();
        definition.build();
        let pages = pages(&definition).expect("pages render");
        // `help` has no page, the program itself has one.
        let nested: usize = definition
            .get_subcommands()
            .filter(|command| command.get_name() != "help")
            .map(|command| command.get_subcommands().filter(|nested| nested.get_name() != "help").count())
            .sum();
        assert_eq!(pages.len(), definition.get_subcommands().count() + nested);
        let (_, manual) = pages.iter().find(|(name, _)| name == "reorder-man").expect("a page for man");
        let manual = String::from_utf8_lossy(manual);
        assert!(manual.contains("\\-\\-output") && manual.contains("\\-\\-format"), "{manual}");
    }
}
