//! What a task executes, by which a later pass finds what an earlier one recorded of the same program.

use std::fs;
use std::path::PathBuf;

use nix::unistd::Pid;

use super::memory;
use super::recording::Recording;

/// A program and the words that it was executed with; empty where the system does not tell.
#[derive(Debug, Default)]
pub(super) struct Executed {
    file: PathBuf,
    words: Vec<Vec<u8>>,
}

impl Executed {
    /// What `task` executes.
    pub(super) fn by(task: Pid) -> Self {
        let file = memory::executed_file(task).unwrap_or_default();
        let command = fs::read(format!("/proc/{task}/cmdline")).unwrap_or_default();
        Self { file, words: command.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect() }
    }

    /// How many words are the same before the first that differs. Later ones often hold numbers of processes and descriptors.
    fn words_in_common(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).take_while(|(one, other)| one == other).count()
    }
}

/// Takes from `earlier` the recording of the program that is most like `executed`: of the same file, with the most leading words in
/// common; the first of several. A program that no earlier pass executed may take the recording of another use of its file.
pub(super) fn take_recording(earlier: &mut Vec<Recording>, executed: &Executed) -> Option<Recording> {
    let same_file =
        earlier.iter().enumerate().filter(|(_, recording)| recording.executed.file == executed.file);
    let alike = same_file.map(|(index, recording)| (index, recording.executed.words_in_common(executed)));
    // `max_by_key` takes the last of equals, so they come in reverse.
    let (index, _) = alike.rev().max_by_key(|(_, words)| *words)?;
    Some(earlier.remove(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executed(file: &str, words: &str) -> Executed {
        let words = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Executed { file: PathBuf::from(file), words }
    }

    #[test]
    fn a_program_continues_what_is_most_like_it() {
        let ran = [("/a", "a one 17"), ("/a", "a two 18"), ("/b", "b"), ("/a", "a two 18")];
        let recording = |number: usize| {
            let (file, words) = ran[number];
            Recording::new(Pid::from_raw(number as i32), executed(file, words))
        };
        let mut earlier: Vec<Recording> = (0..ran.len()).map(recording).collect();
        let mut taken = |file, words| {
            take_recording(&mut earlier, &executed(file, words)).map(|recording| recording.process.as_raw())
        };
        assert_eq!(taken("/a", "a two 25"), Some(1));
        assert_eq!(taken("/b", "other words"), Some(2));
        assert_eq!((taken("/b", "b"), taken("/c", "a one 17")), (None, None));
        assert_eq!((taken("/a", "a"), taken("/a", "a"), taken("/a", "a")), (Some(0), Some(3), None));
    }
}
