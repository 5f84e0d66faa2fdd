//! `task.txt`: which thread belongs to which process, and which session a process is in.
//!
//! ```text
//! SESS timestamp=4171.497030662 pid=7528 sid=d42ace11c5698d08 exename="/tmp/demo"
//! TASK timestamp=4171.497108554 tid=7528 pid=7528
//! FORK timestamp=4171.512123303 pid=7531 ppid=7528
//! DLOP timestamp=4171.512123303 tid=7528 sid=d42ace11c5698d08 base=7f0000000000 libname="/tmp/plugin.so"
//! ```

use std::collections::HashMap;
use std::path::Path;

use crate::Note;
use crate::formats::lines::{lines, split_once};
use reorder_base::numbers::{billionths, decimal, hexadecimal};

/// The time from one `exec` of a process to the next.
pub(super) struct Session {
    /// Nanoseconds.
    pub(super) time: u64,
    process: u32,
    pub(super) id: Vec<u8>,
    pub(super) program: Vec<u8>,
}

/// A library that was loaded while the program ran.
pub(super) struct Loaded {
    pub(super) session: Vec<u8>,
    pub(super) base: u64,
    pub(super) path: Vec<u8>,
}

#[derive(Default)]
pub(super) struct Tasks {
    /// In order of time.
    pub(super) sessions: Vec<Session>,
    pub(super) loaded: Vec<Loaded>,
    /// Indices of the sessions that each process began, in order of time.
    begun: HashMap<u32, Vec<usize>>,
    processes: HashMap<u32, u32>,
    parents: HashMap<u32, u32>,
}

/// Bound on generations of processes: a hostile file may name a process as its own ancestor.
const GENERATIONS: usize = 1000;

impl Tasks {
    pub(super) fn read(directory: &Path, notes: &mut Vec<Note>) -> Self {
        let mut tasks = Self::default();
        match std::fs::read(directory.join("task.txt")) {
            Ok(bytes) => {
                let broken =
                    lines(&bytes).filter(|(_, line)| !line.is_empty() && tasks.line(line).is_none()).count();
                if broken > 0 {
                    notes
                        .push(Note::new(format!("{broken} lines of task.txt are unknown and were left out")));
                }
            }
            Err(error) => {
                notes.push(Note::new(format!("task.txt cannot be read: {error}; threads count as processes")))
            }
        }
        tasks.sessions.sort_by_key(|session| session.time);
        for (index, session) in tasks.sessions.iter().enumerate() {
            tasks.begun.entry(session.process).or_default().push(index);
        }
        tasks
    }

    fn line(&mut self, line: &[u8]) -> Option<()> {
        let (kind, rest) = split_once(line, b" ")?;
        let text = |name: &[u8]| -> Option<&[u8]> {
            let (_, value) = split_once(rest, &[name, b"="].concat())?;
            Some(match value.strip_prefix(b"\"") {
                Some(quoted) => split_once(quoted, b"\"")?.0,
                None => value.split(u8::is_ascii_whitespace).next()?,
            })
        };
        let number = |name: &[u8]| text(name).and_then(decimal::<u32>);
        match kind {
            b"SESS" => self.sessions.push(Session {
                time: nanoseconds(text(b"timestamp")?)?,
                process: number(b"pid")?,
                id: text(b"sid")?.to_vec(),
                program: text(b"exename")?.to_vec(),
            }),
            b"TASK" => drop(self.processes.insert(number(b"tid")?, number(b" pid")?)),
            b"FORK" => drop(self.parents.insert(number(b" pid")?, number(b"ppid")?)),
            b"DLOP" => self.loaded.push(Loaded {
                session: text(b"sid")?.to_vec(),
                base: hexadecimal(text(b"base")?)?,
                path: text(b"libname")?.to_vec(),
            }),
            _ => return None,
        }
        Some(())
    }

    /// The process of a thread; an unknown thread counts as its own process.
    pub(super) fn process_of(&self, thread: u32) -> u32 {
        self.processes.get(&thread).copied().unwrap_or(thread)
    }

    /// The session of `process` at `time`: its own latest one, or that of its parent.
    pub(super) fn session_at(&self, process: u32, time: u64) -> Option<usize> {
        let before = self.sessions.partition_point(|session| session.time <= time);
        let mut process = process;
        for _ in 0..GENERATIONS {
            let own = self.begun.get(&process).map_or(&[][..], Vec::as_slice);
            let after = own.partition_point(|&session| session < before);
            if let Some(&latest) = after.checked_sub(1).and_then(|latest| own.get(latest)) {
                return Some(latest);
            }
            process = *self.parents.get(&process)?;
        }
        None
    }
}

/// `seconds.nanoseconds`
fn nanoseconds(text: &[u8]) -> Option<u64> {
    let (seconds, fraction) = split_once(text, b".")?;
    if fraction.len() == 9 { billionths(seconds, fraction) } else { None }
}
