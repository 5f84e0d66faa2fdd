//! What a command needs besides its own arguments: the output format, and how to print messages.

use std::io::{ErrorKind as IoErrorKind, Write};
use std::path::Path;

use crate::cli::shared_args::SharedArguments;
use crate::cli::talk::Talk;
use crate::cli::timings;
use reorder_base::error::{Error, Result};
use reorder_report::Format;
use reorder_report::{self, Report};

/// The environment of one command.
#[derive(Debug)]
pub struct Context {
    /// Format of the results.
    pub format: Format,
    /// Messages and progress on stderr.
    pub talk: Talk,
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
        Ok(Self { format: shared.format, talk: Talk::new(shared) })
    }

    /// Writes `report` to stdout in the requested format.
    ///
    /// # Errors
    /// When stdout cannot be written, unless the reader has closed it.
    pub fn print(&self, report: &impl Report) -> Result<()> {
        self.print_bytes(reorder_report::render(report, self.format)?.as_bytes())
    }

    /// Writes raw data, such as an order file, to stdout.
    ///
    /// # Errors
    /// When stdout cannot be written, unless the reader has closed it.
    pub fn print_bytes(&self, bytes: &[u8]) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            Err(error) if error.kind() != IoErrorKind::BrokenPipe => {
                Err(Error::io(Path::new("stdout"), error))
            }
            _ => Ok(()),
        }
    }
}
