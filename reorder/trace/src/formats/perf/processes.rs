//! What is mapped where in which process, at the moment of a sample.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::Name;

/// A stretch of a file in a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) start: u64,
    /// One past the last byte.
    pub(super) end: u64,
    /// Where in the file it starts.
    pub(super) offset: u64,
    /// Number of the file; `None` for memory that belongs to none.
    pub(super) image: Option<u32>,
}

impl Mapping {
    /// For addresses that are offsets in a file.
    pub(super) fn whole_file(image: Option<u32>) -> Self {
        Self { start: 0, end: u64::MAX, offset: 0, image }
    }

    pub(super) fn is_whole_file(self) -> bool {
        self == Self::whole_file(self.image)
    }

    /// The part from `start` on.
    fn from(self, start: u64) -> Self {
        Self { start, offset: self.offset.wrapping_add(start - self.start), ..self }
    }
}

/// One program in one process; ends when the process executes another one.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    /// Counts programs over the whole file.
    pub(super) program: u32,
    pub(super) id: u32,
    pub(super) name: Option<Name>,
    /// When it was executed or forked.
    pub(super) started: Option<u64>,
    /// By start, without overlaps; shared with the parent until either changes.
    mappings: Arc<BTreeMap<u64, Mapping>>,
}

/// All processes of a recording.
pub(super) struct Processes {
    running: BTreeMap<u32, Process>,
    programs: u32,
    /// How many mappings may still be copied: without a bound, a file of forks grows with its square.
    copies: usize,
    /// Processes that lost their parent's mappings because of that.
    pub(super) without_mappings: u64,
}

impl Processes {
    /// For a file of that many bytes.
    pub(super) fn new(file_size: usize) -> Self {
        const MIN_COPIES: usize = 1 << 16;
        Self {
            running: BTreeMap::new(),
            programs: 0,
            copies: MIN_COPIES + file_size / 8,
            without_mappings: 0,
        }
    }

    /// The process called `id`, new if it was never heard of.
    pub(super) fn get(&mut self, id: u32) -> &mut Process {
        let programs = &mut self.programs;
        self.running.entry(id).or_insert_with(|| {
            *programs += 1;
            Process { program: *programs, id, ..Process::default() }
        })
    }

    /// `child` starts as a copy of `parent`; a new thread is no new process.
    pub(super) fn fork(&mut self, child: u32, parent: u32, time: Option<u64>) {
        if child != parent {
            let parent = self.get(parent).clone();
            self.programs += 1;
            let copy = Process { program: self.programs, id: child, started: time, ..parent };
            self.running.insert(child, copy);
        }
    }

    /// Process `id` executes another program.
    pub(super) fn execute(&mut self, id: u32, name: Name, time: Option<u64>) {
        self.programs += 1;
        let program = self.programs;
        let process = Process { program, id, name: Some(name), started: time, mappings: Arc::default() };
        self.running.insert(id, process);
    }

    /// Maps something in process `id`, over previous mappings.
    pub(super) fn map(&mut self, id: u32, new: Mapping) {
        if new.end <= new.start {
            return;
        }
        let mappings = &mut self.get(id).mappings;
        let is_shared = Arc::strong_count(mappings) > 1;
        let size = mappings.len();
        if is_shared && size > self.copies {
            self.without_mappings += 1;
            self.get(id).mappings = Arc::default();
        } else if is_shared {
            self.copies -= size;
        }
        insert(Arc::make_mut(&mut self.get(id).mappings), new);
    }

    /// What is mapped at `address` of process `id`.
    pub(super) fn find(&self, id: u32, address: u64) -> Option<Mapping> {
        let (_, mapping) = self.running.get(&id)?.mappings.range(..=address).next_back()?;
        (address < mapping.end).then_some(*mapping)
    }
}

fn insert(mappings: &mut BTreeMap<u64, Mapping>, new: Mapping) {
    if let Some((_, before)) = mappings.range_mut(..new.start).next_back()
        && before.end > new.start
    {
        let whole = *before;
        before.end = new.start;
        if whole.end > new.end {
            mappings.insert(new.end, whole.from(new.end));
        }
    }
    while let Some((&start, &covered)) = mappings.range(new.start..new.end).next() {
        mappings.remove(&start);
        if covered.end > new.end {
            mappings.insert(new.end, covered.from(new.end));
        }
    }
    mappings.insert(new.start, new);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, image: u32) -> Mapping {
        Mapping { start, end, offset: start, image: Some(image) }
    }

    #[test]
    fn new_mappings_cut_old_ones() {
        let mut processes = Processes::new(0);
        processes.map(1, mapping(0x1000, 0x5000, 1));
        processes.map(1, mapping(0x2000, 0x3000, 2));
        let image = |address| processes.find(1, address).and_then(|mapping| mapping.image);
        assert_eq!(
            [0xfff, 0x1000, 0x2000, 0x2fff, 0x3000, 0x5000].map(image),
            [None, Some(1), Some(2), Some(2), Some(1), None]
        );
        assert_eq!(processes.find(1, 0x3000).unwrap().offset, 0x3000);
        processes.map(1, mapping(0, 0x10000, 3));
        assert_eq!(processes.find(1, 0x2000), Some(mapping(0, 0x10000, 3)));
        assert_eq!(processes.find(1, 0x4000), Some(mapping(0, 0x10000, 3)));
    }

    #[test]
    fn children_inherit_and_programs_start_empty() {
        let mut processes = Processes::new(0);
        processes.map(1, mapping(0x1000, 0x2000, 1));
        processes.fork(2, 1, Some(5));
        processes.map(2, mapping(0x8000, 0x9000, 2));
        assert!(processes.find(2, 0x1000).is_some());
        assert_eq!(processes.find(1, 0x8000), None);
        let parent = processes.get(1).program;
        assert_ne!(parent, processes.get(2).program);
        processes.execute(2, "other".into(), None);
        assert_eq!(processes.find(2, 0x1000), None);
    }

    #[test]
    fn copies_are_bounded_and_counted() {
        let mut processes = Processes::new(0);
        for start in 0..1000 {
            processes.map(1, mapping(start * 0x1000, start * 0x1000 + 1, 1));
        }
        for child in 2..200 {
            processes.fork(child, child - 1, None);
            processes.map(child, mapping(0, 1, 2));
        }
        assert!(processes.without_mappings > 0);
    }
}
