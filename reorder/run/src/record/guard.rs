//! Ends a recorded run from another thread, while the recorder waits for the program.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt as _;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::RecordRequest;
use crate::stop_rule::{Stopper, Wish};
use reorder_base::error::{Error, Result};
use reorder_base::hint::Hint;
use reorder_system::process_handle::ProcessHandle;

/// How long a rule may go unnoticed.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What the guard did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Guarded {
    /// The program was asked to end, as the request wants it.
    pub(super) was_asked: bool,
    /// It never printed the text that it was to be ended for.
    pub(super) misses_text: bool,
    /// It had not ended at the time limit and was killed.
    was_late: bool,
}

impl Guarded {
    /// # Errors
    /// When the run was too long.
    pub(super) fn in_time(self, request: &RecordRequest) -> Result<Self> {
        match (self.was_late, request.time_limit) {
            (true, Some(limit)) => {
                let cause = format!("still running after {} s and was stopped", limit.as_secs());
                Err(Error::usage(cause).with_hint(Hint::StopRuns))
            }
            _ => Ok(self),
        }
    }
}

/// Watches `process` until `ended` says that it has ended. What it prints goes on to our own outputs unless it is
/// discarded.
pub(super) fn guard(
    process: &ProcessHandle,
    request: &RecordRequest,
    outputs: Option<&[File; 2]>,
    ended: &Receiver<()>,
) -> io::Result<Guarded> {
    let started = Instant::now();
    let mut stopper = Stopper::new(&request.stop);
    let mut guarded = Guarded::default();
    let mut echo = Echo { written: [0; 2] };
    loop {
        let is_over = !matches!(ended.recv_timeout(LOOK_EVERY), Err(RecvTimeoutError::Timeout));
        if let Some(outputs) = outputs.filter(|_| !request.discard_output) {
            echo.repeat(outputs)?;
        }
        if is_over {
            guarded.misses_text = stopper.misses_text(outputs)?;
            return Ok(guarded);
        }
        if let Wish::Ends(signal) = stopper.look(outputs)? {
            guarded.was_asked = true;
            process.signal(signal);
        }
        let limit = request.time_limit.map(|limit| request.stop.extends(limit));
        if limit.is_some_and(|limit| started.elapsed() >= limit) {
            guarded.was_late = true;
            process.signal(Signal::SIGKILL);
        }
    }
}

/// Repeats what a program prints into files.
struct Echo {
    written: [u64; 2],
}

impl Echo {
    fn repeat(&mut self, outputs: &[File; 2]) -> io::Result<()> {
        let mut buffer = vec![0; 1 << 16];
        let [stdout, stderr] = &mut self.written;
        let (mut to_stdout, mut to_stderr) = (io::stdout().lock(), io::stderr().lock());
        let streams: [(&mut u64, &mut dyn Write); 2] = [(stdout, &mut to_stdout), (stderr, &mut to_stderr)];
        for (output, (written, stream)) in outputs.iter().zip(streams) {
            loop {
                let length = output.read_at(&mut buffer, *written)?;
                if length == 0 {
                    break;
                }
                *written += length as u64;
                // A closed stream is no reason to end the program.
                let _ = stream.write_all(&buffer[..length]).and_then(|()| stream.flush());
            }
        }
        Ok(())
    }
}
