//! Programs linked with the linker plugin, for its tests.
//!
//! One [`Workshop`] is a scratch directory; shell lines run in it. `$PLUGIN` is the flag that loads the plugin.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use tempfile::TempDir;

use crate::process::{Outcome, run};
use crate::workspace::{plugin_path, reorder_path};

const LIMIT: Duration = Duration::from_secs(300);

/// A scratch directory.
pub struct Workshop {
    directory: TempDir,
}

impl Workshop {
    /// An empty one.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Self> {
        Ok(Self { directory: tempfile::tempdir()? })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file.
    ///
    /// # Errors
    /// The system's.
    pub fn write(&self, name: &str, contents: &str) -> io::Result<()> {
        fs::write(self.path().join(name), contents)
    }

    /// Runs `line` by the shell and gives its outcome; `$PLUGIN` and `$REORDER` are what is tested.
    ///
    /// # Errors
    /// The shell does not start.
    pub fn attempt(&self, line: &str) -> io::Result<Outcome> {
        let mut command = std::process::Command::new("bash");
        command.args(["-e", "-o", "pipefail", "-c", line]).current_dir(self.path()).env("LC_ALL", "C");
        command.env("PLUGIN", format!("-Wl,-plugin,{}", plugin_path().display()));
        command.env("PLUGIN_PATH", plugin_path()).env("REORDER", reorder_path());
        run(&mut command, LIMIT)
    }

    /// The same for lines that must succeed; gives all output, standard output first.
    ///
    /// # Panics
    /// When it fails: a missing or broken tool is a failed test.
    pub fn shell(&self, line: &str) -> String {
        let outcome = self.attempt(line).expect("bash starts");
        assert!(outcome.success(), "{line}\n{outcome}");
        outcome.stdout_text() + &outcome.stderr_text()
    }

    /// The names of `wanted` in the order of their addresses in `image`.
    ///
    /// # Panics
    /// When the image has no symbols.
    pub fn order_of(&self, image: &str, wanted: &[&str]) -> Vec<String> {
        let listing = self.shell(&format!("nm -n --defined-only {image}"));
        let names = listing.lines().filter_map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let &[_, kind, name] = words.as_slice() else { return None };
            "TtWw".contains(kind).then_some(name)
        });
        let names: Vec<String> = names.filter(|name| wanted.contains(name)).map(str::to_owned).collect();
        assert!(!names.is_empty(), "{listing}");
        names
    }

    /// Checks that the functions of `expected` are adjacent in `image` in the listed order.
    ///
    /// # Panics
    /// When they are not.
    pub fn assert_order(&self, image: &str, expected: &[&str]) {
        assert_eq!(self.order_of(image, expected), expected, "{image}");
        let listing = self.shell(&format!("nm -n --defined-only {image}"));
        let code: Vec<&str> = listing
            .lines()
            .filter(|line| [" T ", " t ", " W ", " w "].iter().any(|kind| line.contains(kind)))
            .collect();
        let position = |name: &str| code.iter().position(|line| line.ends_with(&format!(" {name}")));
        let span = expected
            .last()
            .and_then(|last| position(last))
            .zip(expected.first().and_then(|first| position(first)));
        let (last, first) = span.expect("they are there");
        // Aliases of one function are further lines.
        assert!(last - first < 2 * expected.len(), "{image} has others between them:\n{listing}");
    }
}
