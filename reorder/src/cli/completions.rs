//! `reorder completions`: shell completions, generated from the definition of the command line.

use clap::Args;
use clap_complete::Shell;

use crate::cli::context::Context;
use crate::exit_status::ExitStatus;
use reorder_base::error::Result;

const EXAMPLES: &str = "\
Examples:
  reorder completions bash > ~/.local/share/bash-completion/completions/reorder
  reorder completions zsh > ~/.zfunc/_reorder
  reorder completions fish > ~/.config/fish/completions/reorder.fish";

/// Print the completion script of a shell
#[derive(Args, Debug)]
#[command(before_long_help = EXAMPLES)]
pub struct CompletionsArguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script to stdout.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(arguments: &CompletionsArguments, context: &Context) -> Result<ExitStatus> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut super::definition(), "reorder", &mut script);
    context.print_bytes(&script)?;
    Ok(ExitStatus::Success)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_gets_every_command() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut crate::cli::definition(), "reorder", &mut script);
            let script = String::from_utf8(script).expect("scripts are text");
            for command in crate::cli::definition().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: no {}", command.get_name());
            }
        }
    }
}
