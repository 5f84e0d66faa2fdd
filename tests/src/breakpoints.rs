//! Asks gdb which addresses of a program one run executes: a check that shares nothing with the recorder.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use crate::process;

/// Debug information is read before the run starts.
const LIMIT: Duration = Duration::from_secs(300);

/// Those of `addresses` (as stated in the image of `command`'s program) that its run executes. `entry` is the
/// stated address of the symbol `_start`, from which the load address follows.
///
/// # Errors
/// A sentence when gdb fails, sets fewer breakpoints than asked for, misses the entry, or the program fails.
pub fn executed(command: &Command, entry: u64, addresses: &BTreeSet<u64>) -> Result<BTreeSet<u64>, String> {
    // Every run executes the entry: if gdb does not see it, a missing hit of another address proves nothing.
    let mut watched = addresses.clone();
    watched.insert(entry);
    let mut script = String::from(
        "set pagination off\nset breakpoint pending off\nset language c\nset inferior-tty /dev/null\nstarti\n",
    );
    for (number, address) in (1..).zip(&watched) {
        // gdb still counts hits of a breakpoint that it always ignores.
        let _ = writeln!(script, "break *((unsigned long)&_start - {entry:#x} + {address:#x})");
        let _ = writeln!(script, "ignore {number} 1000000000");
    }
    script.push_str("continue\ninfo breakpoints\n");
    let mut file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    file.write_all(script.as_bytes()).map_err(|error| error.to_string())?;

    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-x"]).arg(file.path()).arg("--args");
    gdb.arg(command.get_program()).args(command.get_args());
    let outcome = process::run(&mut gdb, LIMIT).map_err(|error| format!("gdb: {error}"))?;
    let text = outcome.stdout_text();
    let set = text.lines().filter(|line| line.starts_with("Breakpoint ") && line.contains(" at ")).count();
    if !outcome.success() || set != watched.len() || !text.contains("exited normally") {
        return Err(format!("gdb set {set} of {} breakpoints\n{outcome}", watched.len()));
    }
    // `4   breakpoint   keep y   0x…`, and below it: `breakpoint already hit 2 times`.
    let ordered: Vec<u64> = watched.iter().copied().collect();
    let mut current = None;
    let mut hits = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some(number), Some("breakpoint")) => current = number.parse::<usize>().ok(),
            (Some("breakpoint"), Some("already")) => {
                hits.extend(current.and_then(|number| ordered.get(number.checked_sub(1)?)));
            }
            _ => {}
        }
    }
    if hits.contains(&entry) {
        Ok(hits.intersection(addresses).copied().collect())
    } else {
        Err(format!("gdb misses the entry\n{outcome}"))
    }
}
