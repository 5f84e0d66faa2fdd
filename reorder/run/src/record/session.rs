//! Follows one run of the program and everything it starts, from stop to stop.
//!
//! Must run in a thread of its own: only this thread's children are waited for, and when it ends in any way,
//! the system kills what is still traced instead of leaving it with breakpoints.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::sys::ptrace;
use nix::unistd::Pid;

use super::RecordRequest;
use super::address_space::{AddressSpace, Hit};
use super::executed::{Executed, take_recording};
use super::failure::{Failure, Served, forbids, names_no_process, unless_killed, wait_failed};
use super::image::TracedImage;
use super::input_reads::InputReads;
use super::launch::Launched;
use super::memory::{self, Mapping, ProgramMark};
use super::own_traps::{Delivery, OwnTraps};
use super::recording::Recording;
use super::statistics::Statistics;
use super::tasks::{SharedSpace, Tasks};
use super::trap::Trap;
use reorder_base::error::{Error, Result};
use reorder_system::arch;
use reorder_system::stops::{self, Ending, Report, Resume, Stop};

/// The result of one run.
pub(super) struct RunOutcome {
    /// In the order of the `exec`s; then those of earlier passes whose programs this pass did not execute.
    pub(super) recordings: Vec<Recording>,
    pub(super) ending: Ending,
}

/// The state of one run.
pub(super) struct Session<'images> {
    pub(super) images: &'images mut Vec<TracedImage>,
    pub(super) statistics: &'images mut Statistics,
    root: Pid,
    launched: Option<Launched>,
    pub(super) tasks: Tasks,
    recordings: Vec<Rc<RefCell<Recording>>>,
    /// Recordings of earlier passes whose programs this pass has not executed yet.
    earlier: Vec<Recording>,
    pub(super) own_traps: OwnTraps,
    /// Basic blocks are recorded too.
    pub(super) records_blocks: bool,
    /// Processes that go on untraced.
    pub(super) left_running: BTreeSet<Pid>,
    /// Every library that was asked for.
    libraries: Vec<usize>,
    /// The program has ended; what outlives it goes on untraced.
    pub(super) releasing: bool,
    /// What outlives it is killed instead.
    pub(super) ends_descendants: bool,
    pub(super) input_reads: InputReads,
    /// Tasks that are executing one watched instruction, and where they hit it.
    pub(super) steps: BTreeMap<Pid, Hit>,
}

/// How often to poll while a newborn task waits for its parent's report.
const LOOK_EVERY: Duration = Duration::from_micros(200);

impl<'images> Session<'images> {
    /// Follows what was launched; the executed program is added to `images` unless it is there. `earlier` is what earlier passes
    /// recorded.
    pub(super) fn new(
        launched: Launched,
        earlier: Vec<Recording>,
        request: &RecordRequest,
        images: &'images mut Vec<TracedImage>,
        statistics: &'images mut Statistics,
    ) -> Self {
        let libraries = (0..images.len()).filter(|&index| images[index].is_library).collect();
        let root = launched.process;
        Self {
            images,
            statistics,
            root,
            launched: Some(launched),
            tasks: Tasks::of(root),
            recordings: Vec::new(),
            earlier,
            own_traps: OwnTraps::new(request.keep_own_traps),
            records_blocks: request.blocks,
            left_running: BTreeSet::new(),
            libraries,
            releasing: false,
            ends_descendants: request.ends_descendants,
            input_reads: InputReads::of(request),
            steps: BTreeMap::new(),
        }
    }

    /// Serves stops until the program has ended and all its descendants have ended or were let go.
    ///
    /// # Errors
    /// Images that cannot be traced and refusals of the system; what still runs is then killed.
    pub(super) fn follow(mut self) -> Result<RunOutcome> {
        let mut ending = None;
        while let Some((task, report)) = self.next_report()? {
            match report {
                Report::Ended(how) => {
                    self.tasks.remove(task);
                    self.own_traps.ended(task);
                    self.steps.remove(&task);
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
        self.statistics.left_running += self.left_running.len() as u64;
        self.statistics.read_empty_input |= self.input_reads.were_empty();
        let recordings = self.recordings.into_iter().filter_map(Rc::into_inner).map(RefCell::into_inner);
        Ok(RunOutcome { recordings: recordings.chain(self.earlier).collect(), ending })
    }

    /// Waits for the next stop or end; `None` when no task is left.
    fn next_report(&mut self) -> Result<Option<(Pid, Report)>> {
        // Parents that are killed while they make a child never report it, and no event says that they will not.
        while self.tasks.someone_waits() {
            if let Some(orphan) = self.tasks.orphan() {
                let served = self.adopt(orphan);
                unless_killed(orphan, served)?;
            } else if let Some(next) = stops::poll().map_err(wait_failed)? {
                return Ok(Some(next));
            } else {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        stops::wait().map_err(wait_failed)
    }

    fn serve(&mut self, task: Pid, stop: Stop) -> Served {
        // Other stops may be reported between a step and the signal that ends it.
        if matches!(stop, Stop::Signal(signal) if signal != libc::SIGTRAP) {
            self.interrupt_step(task)?;
        }
        match stop {
            Stop::Signal(libc::SIGTRAP) if self.stepped(task)? => self.resume(task, 0),
            Stop::Signal(libc::SIGTRAP) if self.own_traps.entered(task)? => self.resume(task, 0),
            Stop::Signal(libc::SIGTRAP) => match self.trap(task)? {
                Trap::Ours => self.resume(task, 0),
                Trap::Watched(hit) => {
                    self.steps.insert(task, hit);
                    Ok(stops::resume(task, Resume::OneStep, 0)?)
                }
                Trap::Own => self.deliver(task, libc::SIGTRAP),
            },
            Stop::Signal(signal) => self.deliver(task, signal),
            Stop::Group => stops::resume(task, Resume::Listening, 0).map_err(Failure::from),
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

    /// Gives a signal of its own to the program.
    fn deliver(&mut self, task: Pid, signal: i32) -> Served {
        match self.own_traps.deliver(task, signal) {
            Delivery::Plain => self.resume(task, signal),
            Delivery::IntoHandler => Ok(stops::resume(task, Resume::OneStep, signal)?),
        }
    }

    fn resume(&self, task: Pid, signal: i32) -> Served {
        let misses = self.tasks.space(task).is_some_and(|space| !space.borrow().missing.is_empty());
        let watches = self.own_traps.watches(task) || self.input_reads.is_watching();
        let how = if misses || watches { Resume::ToSystemCall } else { Resume::Freely };
        Ok(stops::resume(task, how, signal)?)
    }

    /// A task begins its life, or a group stop ended.
    fn attached(&mut self, task: Pid) -> Served {
        self.own_traps.note_mask(task)?;
        if self.tasks.must_wait(task) { Ok(()) } else { self.resume(task, 0) }
    }

    /// Gives the child of `parent` its address space; gives the child if it has stopped already and waits.
    pub(super) fn made_child(&mut self, parent: Pid, event: i32) -> Served<Option<Pid>> {
        let child = Pid::from_raw(ptrace::getevent(parent)? as libc::pid_t);
        let space = match self.tasks.space(parent) {
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
        self.own_traps.forked(parent, child);
        Ok(self.tasks.tell(child, space).then_some(child))
    }

    /// Lets a newborn task go on whose parent will never report it: its own memory tells nearly as much.
    fn adopt(&mut self, orphan: Pid) -> Served {
        let space = match self.inherited_space(orphan) {
            Ok(space) => Some(space),
            Err(error) if names_no_process(&error) || forbids(&error) => None,
            Err(error) => return Err(Failure::Other(error)),
        };
        self.tasks.adopt(orphan, space);
        if self.releasing { self.let_go(orphan, 0) } else { self.resume(orphan, 0) }
    }

    /// The memory of `task` with the breakpoints that were copied with it.
    fn inherited_space(&self, task: Pid) -> Result<SharedSpace> {
        let (mut space, mappings) = self.open_space(task, |mark| {
            let is_family =
                |recording: &&Rc<RefCell<Recording>>| mark.is_some_and(|mark| recording.borrow().is_of(mark));
            // Of a program that has overwritten its mark only the breakpoints matter.
            let unknown = || Rc::new(RefCell::new(Recording::new(task, Executed::default())));
            self.recordings.iter().find(is_family).map_or_else(unknown, Rc::clone)
        })?;
        for (index, mapping) in mappings {
            space.inherit(index, &self.images[index], &mapping);
        }
        Ok(Rc::new(RefCell::new(space)))
    }

    /// The memory of `task`, as if it had no breakpoints, and where the images are in it.
    fn open_space(
        &self,
        task: Pid,
        recording: impl FnOnce(Option<ProgramMark>) -> Rc<RefCell<Recording>>,
    ) -> Result<(AddressSpace, Vec<(usize, Mapping)>)> {
        let space = AddressSpace::new(task, self.libraries.clone(), recording)?;
        let mappings = memory::executable_mappings(task).map_err(wait_failed)?;
        let of_images = mappings.into_iter();
        let of_images = of_images.filter_map(|mapping| Some((self.image_of(task, &mapping.path)?, mapping)));
        Ok((space, of_images.collect()))
    }

    fn executed(&mut self, task: Pid) -> Served {
        let former = Pid::from_raw(ptrace::getevent(task)? as libc::pid_t);
        self.tasks.executed(task, former);
        self.own_traps.executed(task)?;
        let is_first = self.launched.take().is_some();
        if is_first {
            self.add_program(task)?;
        }
        let executed = Executed::by(task);
        let earlier = take_recording(&mut self.earlier, &executed);
        let is_continued = earlier.is_some();
        let recording = match earlier {
            Some(recording) => recording.continued(task, executed),
            None => Recording::new(task, executed),
        };
        let recording = Rc::new(RefCell::new(recording));
        let opened = self.open_space(task, |mark| {
            recording.borrow_mut().set_mark(mark);
            Rc::clone(&recording)
        });
        // Before anything can fail: what it holds stays if the task is killed.
        if is_continued || opened.is_ok() {
            self.recordings.push(recording);
        }
        match opened {
            Ok((space, mappings)) => self.begin_recording(task, space, &mappings)?,
            // This user may not be allowed to read what the program executes.
            Err(error) if !is_first && forbids(&error) => self.statistics.forbidden_programs += 1,
            Err(error) => return Err(error.into()),
        }
        self.resume(task, 0)
    }

    /// Plants the breakpoints of the program that `task` is about to execute.
    fn begin_recording(
        &mut self,
        task: Pid,
        mut space: AddressSpace,
        mappings: &[(usize, Mapping)],
    ) -> Result<()> {
        let begun = Instant::now();
        let mut bytes = 0;
        for (index, mapping) in mappings {
            bytes += space.arm(*index, &self.images[*index], mapping)?;
        }
        // Functions lead into each other: all mappings of an image come first.
        let indices: BTreeSet<usize> = mappings.iter().map(|(index, _)| *index).collect();
        indices.into_iter().try_for_each(|index| self.plant_rest(&mut space, index))?;
        self.statistics.armed(bytes, begun.elapsed());
        space.recording.borrow_mut().start_clock();
        self.tasks.give(task, Rc::new(RefCell::new(space)));
        Ok(())
    }

    /// Plants the breakpoints inside of functions of image `index` that ran before.
    fn plant_rest(&mut self, space: &mut AddressSpace, index: usize) -> Result<()> {
        match self.records_blocks {
            true => space.plant_rest(&mut self.images[index], index).map_err(wait_failed),
            false => Ok(()),
        }
    }

    /// The first executed file is always traced: for a script it is the interpreter.
    fn add_program(&mut self, task: Pid) -> Result<()> {
        let failed = |error| {
            Error::io(Path::new(&format!("/proc/{task}/exe")), error).with_hint(
                match Path::new("/proc/self").exists() {
                    true => "only programs that this user may read can be recorded",
                    false => "recording needs the file system /proc: mount -t proc proc /proc",
                },
            )
        };
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
        self.input_reads.note_system_call(task)?;
        if let Some(space) = self.tasks.space(task).cloned() {
            space.borrow().note_system_call(task, &mut self.own_traps)?;
        }
        if let Some(mapped) = arch::finished_code_mapping(task)?
            && let Ok(path) = memory::descriptor_file(task, mapped.descriptor)
            && let Some(index) = self.image_of(task, &path)
            && let Some(space) = self.tasks.space(task).cloned()
            && space.borrow().missing.contains(&index)
        {
            let mapping = Mapping { start: mapped.start, length: mapped.length, offset: mapped.offset, path };
            let begun = Instant::now();
            let bytes = space.borrow_mut().arm(index, &self.images[index], &mapping)?;
            self.plant_rest(&mut space.borrow_mut(), index)?;
            self.statistics.armed(bytes, begun.elapsed());
        }
        self.resume(task, 0)
    }
}

/// Whether a task has just made another.
pub(super) fn is_birth(event: i32) -> bool {
    matches!(event, libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_VFORK | libc::PTRACE_EVENT_CLONE)
}
