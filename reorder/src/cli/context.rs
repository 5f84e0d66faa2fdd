//! What a command needs besides its own arguments: the output format, and how to print messages.

use std::io::{ErrorKind as IoErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use crate::cli::shared_args::SharedArguments;
use crate::cli::talk::Talk;
use crate::cli::timings;
use reorder_base::error::{Error, Result};
use reorder_report::{self, Format, Report, Width};

/// The environment of one command.
#[derive(Debug)]
pub struct Context {
    /// Format of the results.
    pub format: Format,
    /// Messages and progress on stderr.
    pub talk: Talk,
    /// Of the terminal that stdout goes to.
    pub width: Width,
}

impl Context {
    /// Sets up threads, timings and messages as requested.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn new(shared: &SharedArguments) -> Result<Self> {
        rayon::ThreadPoolBuilder::new().num_threads(usize::from(shared.threads)).build_global().map_err(
            |error| {
                Error::usage(format!("cannot start {} threads: {error}", shared.threads))
                    .with_hint("give fewer with --threads N")
            },
        )?;
        timings::install(shared);
        Ok(Self { format: shared.format, talk: Talk::new(shared), width: width_of(&std::io::stdout()) })
    }

    /// Writes `report` to stdout in the requested format.
    ///
    /// # Errors
    /// When stdout cannot be written, unless the reader has closed it.
    pub fn print(&self, report: &impl Report) -> Result<()> {
        self.print_bytes(reorder_report::render(report, self.format, self.width)?.as_bytes())
    }

    /// Writes raw data, such as an order file, to stdout.
    ///
    /// # Errors
    /// When stdout cannot be written, unless the reader has closed it.
    pub(crate) fn print_bytes(&self, bytes: &[u8]) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != IoErrorKind::BrokenPipe => {
                Err(Error::io(Path::new("stdout"), error))
            }
            _ => Ok(()),
        }
    }
}

/// Columns of the terminal: those that the user says, else those that it has. What is piped or written to a file is whole.
pub(super) fn width_of(stream: &(impl IsTerminal + AsFd)) -> Width {
    if !stream.is_terminal() {
        return Width::UNLIMITED;
    }
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let has = || terminal_size::terminal_size_of(stream).map(|(columns, _)| usize::from(columns.0));
    said.or_else(has).filter(|&columns| columns > 0).map_or(Width::UNLIMITED, Width::of_terminal)
}
