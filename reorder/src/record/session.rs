//! Follows one run of the program and everything it starts, from stop to stop.
//!
//! Must run in a thread of its own: only this thread's children are waited for, and when it ends, however it ends,
//! the system kills what is still traced instead of leaving it with breakpoints.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::address_space::AddressSpace;
use super::image::TracedImage;
use super::launch::Launched;
use super::memory::{self, Mapping};
use super::recording::Recording;
use super::statistics::Statistics;
use super::system::{self, Ending, Report, Resume, Stop};
use crate::arch;
use crate::error::{Error, ErrorKind, Result};

/// What one run gave.
pub(super) struct RunOutcome {
    /// In the order of the `exec`s.
    pub(super) recordings: Vec<Recording>,
    pub(super) ending: Ending,
}

/// A thread or process that is followed.
#[derive(Debug)]
struct Task {
    /// Nothing before the first `exec`, and for newborn tasks whose parent has not told of them yet.
    space: Option<Rc<RefCell<AddressSpace>>>,
    /// It has stopped before its parent told of it, and waits.
    waits: bool,
}

/// The state of one run.
pub(super) struct Session<'images> {
    images: &'images mut Vec<TracedImage>,
    statistics: &'images mut Statistics,
    root: Pid,
    launched: Option<Launched>,
    tasks: BTreeMap<Pid, Task>,
    recordings: Vec<Rc<RefCell<Recording>>>,
    /// Every library that was asked for.
    libraries: Vec<usize>,
    /// The program has ended; what outlives it goes on untraced.
    releasing: bool,
}

impl<'images> Session<'images> {
    /// Follows what was launched; the executed program is added to `images` unless it is there.
    pub(super) fn new(
        launched: Launched,
        images: &'images mut Vec<TracedImage>,
        statistics: &'images mut Statistics,
    ) -> Self {
        let libraries = (0..images.len()).filter(|&index| images[index].is_library).collect();
        let root = launched.process;
        let tasks = BTreeMap::from([(root, Task { space: None, waits: false })]);
        Self {
            images,
            statistics,
            root,
            launched: Some(launched),
            tasks,
            recordings: Vec::new(),
            libraries,
            releasing: false,
        }
    }

    /// Serves stops until the program has ended and all its descendants have ended or were let go.
    ///
    /// # Errors
    /// Images that cannot be traced and refusals of the system; what still runs is then killed.
    pub(super) fn follow(mut self) -> Result<RunOutcome> {
        let mut ending = None;
        while let Some((task, report)) = system::wait().map_err(wait_failed)? {
            match report {
                Report::Ended(how) => {
                    self.tasks.remove(&task);
                    if task == self.root {
                        ending = Some(how);
                        self.begin_release();
                    }
                }
                Report::Stopped(stop) => {
                    let served =
                        if self.releasing { self.release(task, stop) } else { self.serve(task, stop) };
                    unless_killed(task, served)?;
                }
            }
        }
        if let Some(launched) = self.launched {
            return Err(launched.failure());
        }
        let ending = ending.ok_or_else(|| Error::usage("the program vanished without an exit status"))?;
        drop(self.tasks);
        let recordings = self.recordings.into_iter().filter_map(Rc::into_inner).map(RefCell::into_inner);
        Ok(RunOutcome { recordings: recordings.collect(), ending })
    }

    fn serve(&mut self, task: Pid, stop: Stop) -> Served {
        match stop {
            Stop::Signal(libc::SIGTRAP) => {
                let signal = self.trap(task)?;
                self.resume(task, signal)
            }
            Stop::Signal(signal) => self.resume(task, signal),
            Stop::Group => system::resume(task, Resume::Listening, 0).map_err(Failure::from),
            Stop::Attached => self.attached(task),
            Stop::SystemCall => self.system_call(task),
            Stop::Event(libc::PTRACE_EVENT_EXEC) => self.executed(task),
            Stop::Event(event) => {
                if is_birth(event)
                    && let Some(child) = self.made_child(task, event)?
                {
                    self.resume(child, 0)?;
                }
                self.resume(task, 0)
            }
        }
    }

    /// Makes all that is left stop, to be let go.
    fn begin_release(&mut self) {
        self.releasing = true;
        for &task in self.tasks.keys() {
            // It may have ended by itself, which will be reported.
            let _ = ptrace::interrupt(task);
        }
    }

    /// Lets a stopped task go on untraced.
    fn release(&mut self, task: Pid, stop: Stop) -> Served {
        let signal = match stop {
            Stop::Signal(libc::SIGTRAP) => self.trap(task)?,
            Stop::Signal(signal) => signal,
            Stop::Attached if self.is_newborn(task) => return Ok(()),
            Stop::Event(libc::PTRACE_EVENT_EXEC) => {
                // New memory, without breakpoints.
                self.tasks.remove(&task);
                0
            }
            Stop::Event(event) if is_birth(event) => {
                if let Some(child) = self.made_child(task, event)? {
                    self.let_go(child, 0)?;
                }
                0
            }
            _ => 0,
        };
        self.let_go(task, signal)
    }

    fn let_go(&mut self, task: Pid, signal: i32) -> Served {
        if let Some(Task { space: Some(space), .. }) = self.tasks.remove(&task) {
            space.borrow_mut().disarm_all(self.images)?;
        }
        Ok(system::resume(task, Resume::Untraced, signal)?)
    }

    fn space(&self, task: Pid) -> Option<&Rc<RefCell<AddressSpace>>> {
        self.tasks.get(&task)?.space.as_ref()
    }

    fn resume(&self, task: Pid, signal: i32) -> Served {
        let misses = self.space(task).is_some_and(|space| !space.borrow().missing.is_empty());
        let how = if misses { Resume::ToSystemCall } else { Resume::Freely };
        Ok(system::resume(task, how, signal)?)
    }

    /// Takes away the breakpoint that `task` has hit; gives the signal to deliver if it was none of ours.
    fn trap(&mut self, task: Pid) -> Served<i32> {
        let arrived = Instant::now();
        let Some(address) = arch::breakpoint_hit(task)? else { return Ok(libc::SIGTRAP) };
        let hit = self.space(task).and_then(|space| {
            let hit = space.borrow().start_at(self.images, address)?;
            Some((Rc::clone(space), hit))
        });
        let Some((space, hit)) = hit else { return Ok(libc::SIGTRAP) };
        let space = space.borrow();
        let is_first = space.recording.borrow_mut().hit(hit.image, hit.start);
        space.disarm(self.images, hit)?;
        arch::go_on_at(task, address)?;
        if is_first {
            self.statistics.first_execution(arrived.elapsed());
        }
        Ok(0)
    }

    /// A task begins its life, or a group stop ended.
    fn attached(&mut self, task: Pid) -> Served {
        if self.is_newborn(task) { Ok(()) } else { self.resume(task, 0) }
    }

    /// Whether `task` must wait until its parent's stop tells what memory it has.
    fn is_newborn(&mut self, task: Pid) -> bool {
        self.tasks.entry(task).or_insert(Task { space: None, waits: true }).waits
    }

    /// Gives the child of `parent` its address space; gives the child if it has stopped already and waits.
    fn made_child(&mut self, parent: Pid, event: i32) -> Served<Option<Pid>> {
        let child = Pid::from_raw(ptrace::getevent(parent)? as libc::pid_t);
        let space = match self.space(parent) {
            None => None,
            Some(space) => {
                let told = arch::child_shares_memory(parent, |address| space.borrow().word(address))?;
                if told.unwrap_or(event != libc::PTRACE_EVENT_FORK) {
                    Some(Rc::clone(space))
                } else {
                    match space.borrow().forked(child) {
                        Ok(forked) => Some(Rc::new(RefCell::new(forked))),
                        // A child that was killed before its first instruction has no memory to open.
                        Err(error) if names_no_process(&error) => None,
                        Err(error) => return Err(Failure::Other(error)),
                    }
                }
            }
        };
        let waits = self.tasks.insert(child, Task { space, waits: false }).is_some_and(|known| known.waits);
        Ok(waits.then_some(child))
    }

    fn executed(&mut self, task: Pid) -> Served {
        let former = Pid::from_raw(ptrace::getevent(task)? as libc::pid_t);
        // The thread that executes takes over the process id; the other threads are gone.
        self.tasks.remove(&former);
        self.tasks.insert(task, Task { space: None, waits: false });
        if self.launched.take().is_some() {
            self.add_program(task)?;
        }
        let recording = Rc::new(RefCell::new(Recording::new(task)));
        let mut space = AddressSpace::new(task, self.libraries.clone(), Rc::clone(&recording))?;
        let begun = Instant::now();
        let mut bytes = 0;
        for mapping in memory::executable_mappings(task)? {
            if let Some(index) = self.image_of(task, &mapping.path) {
                bytes += space.arm(index, &self.images[index], &mapping)?;
            }
        }
        self.statistics.armed(bytes, begun.elapsed());
        recording.borrow_mut().start_clock();
        self.recordings.push(recording);
        self.tasks.insert(task, Task { space: Some(Rc::new(RefCell::new(space))), waits: false });
        self.resume(task, 0)
    }

    /// The first executed file is always traced: for a script it is the interpreter.
    fn add_program(&mut self, task: Pid) -> Result<()> {
        let failed = |error| Error::io(Path::new(&format!("/proc/{task}/exe")), error);
        let path = memory::executed_file(task).map_err(failed)?;
        if self.image_of(task, &path).is_none() {
            self.images.push(TracedImage::read(&path)?);
        }
        Ok(())
    }

    fn image_of(&self, task: Pid, path: &Path) -> Option<usize> {
        if memory::is_deleted(path) {
            return None;
        }
        let spelled = memory::seen_by(task, path);
        self.images.iter().position(|image| image.is_file(path, &spelled))
    }

    /// Looks for libraries that are just being mapped, before anything in them runs.
    fn system_call(&mut self, task: Pid) -> Served {
        if let Some(mapped) = arch::finished_code_mapping(task)?
            && let Ok(path) = memory::descriptor_file(task, mapped.descriptor)
            && let Some(index) = self.image_of(task, &path)
            && let Some(space) = self.space(task).cloned()
            && space.borrow().missing.contains(&index)
        {
            let mapping = Mapping { start: mapped.start, length: mapped.length, offset: mapped.offset, path };
            let begun = Instant::now();
            let bytes = space.borrow_mut().arm(index, &self.images[index], &mapping)?;
            self.statistics.armed(bytes, begun.elapsed());
        }
        self.resume(task, 0)
    }
}

type Served<T = ()> = std::result::Result<T, Failure>;

/// A task that was killed in the middle of being served is no failure: its end is reported next.
fn unless_killed(task: Pid, served: Served) -> Result<()> {
    match served {
        Ok(()) | Err(Failure::Gone) => Ok(()),
        Err(Failure::Other(_)) if is_gone(task) => Ok(()),
        Err(Failure::Other(error)) => Err(error),
    }
}

/// Whether a task that had stopped was killed meanwhile.
fn is_gone(task: Pid) -> bool {
    ptrace::getevent(task) == Err(Errno::ESRCH)
}

/// Whether the system says that a process does not exist any more.
fn names_no_process(error: &Error) -> bool {
    let ErrorKind::Io(source) = &error.kind else { return false };
    matches!(source.raw_os_error(), Some(libc::ESRCH | libc::ENOENT))
}

fn is_birth(event: i32) -> bool {
    matches!(event, libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE)
}

/// Why a stop was not served.
enum Failure {
    /// The task was killed meanwhile.
    Gone,
    /// Recording cannot go on.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone,
            _ => Self::Other(wait_failed(error)),
        }
    }
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        std::io::Error::from(error).into()
    }
}

fn wait_failed(error: std::io::Error) -> Error {
    let mut failure = Error::io(Path::new("/proc"), error);
    failure.message = "tracing failed".to_owned();
    failure.file = None;
    failure
}
