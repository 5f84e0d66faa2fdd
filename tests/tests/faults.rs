//! Every fault with every command that writes: afterwards each output has its old contents or those of a run without the
//! fault, never a part of them, and there are no other files.
//!
//! One test for each pair, named `fault/command`, so that a run of this file prints the table.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so where it stands")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use end_to_end::process::{self, Ending, Outcome, copy_executable, shell};
use end_to_end::workspace;
use libtest_mimic::{Arguments, Failed, Trial};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(300);

/// A command that writes: its name in the table, the shell's words, and the outputs below `out` that it names.
struct Writer {
    name: &'static str,
    line: &'static str,
    outputs: &'static [&'static str],
    /// Path of what is at the first output before the command runs.
    before: Option<&'static str>,
    /// The names of its outputs are new in each run.
    is_adding: bool,
}

const WRITERS: [Writer; 10] = [
    Writer::new("apply", "reorder apply program -t traces -o out/new", &["new"]),
    Writer::new("apply over a file", "reorder apply program -t traces -o out/new", &["new"]).over("older"),
    Writer::new("apply --in-place", "reorder apply out/program -t traces --in-place", &["program"])
        .over("program"),
    Writer::new("apply --map", "reorder apply program -t traces -o out/new --map out/map", &["map", "new"]),
    Writer::new("optimize", "reorder optimize program -o out/new --run a --measure-runs 0", &["new"]),
    Writer::new("order", "reorder order program -t traces -o out/order", &["order"]),
    Writer::new("traces merge", "reorder traces merge traces -o out/merged", &["merged"]),
    Writer::new("report", "reorder report program -t traces -o out/page", &["page"]),
    Writer::new("reorder-cc", "reorder-cc --reorder-traces=traces main.o -o out/program", &["program"]),
    Writer { is_adding: true, ..Writer::new("record", "reorder record -o out -- ./program a", &[]) },
];

impl Writer {
    const fn new(name: &'static str, line: &'static str, outputs: &'static [&'static str]) -> Self {
        Self { name, line, outputs, before: None, is_adding: false }
    }

    const fn over(self, before: &'static str) -> Self {
        Self { before: Some(before), ..self }
    }

    /// The contents of `output` before the command runs.
    fn older(&self, workplace: &Workplace, output: &str) -> Option<Vec<u8>> {
        let before = self.before.filter(|_| self.outputs.first() == Some(&output))?;
        Some(fs::read(workplace.at(before)).unwrap())
    }
}

/// A fault and its test.
struct Fault {
    name: &'static str,
    check: fn(&Writer) -> Result<(), Failed>,
}

const FAULTS: [Fault; 7] = [
    Fault { name: "file size limit", check: a_limit_of_file_sizes },
    Fault { name: "folder without permission", check: a_folder_without_permission },
    Fault { name: "no folder", check: no_folder },
    Fault { name: "a folder in the output's place", check: a_folder_in_the_place },
    Fault { name: "closed pipe", check: a_closed_pipe },
    Fault { name: "memory limit", check: a_limit_of_memory },
    Fault { name: "killed at 50 moments", check: killed },
];

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for fault in FAULTS {
        for writer in &WRITERS {
            let check = fault.check;
            trials.push(Trial::test(format!("{}/{}", fault.name, writer.name), move || check(writer)));
        }
    }
    trials.push(Trial::test("input made shorter at 20 moments/apply", truncated_input));
    trials.push(Trial::test("input replaced at 20 moments/apply --in-place", replaced_input));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A folder that all users can read, with a program, its traces, and an empty folder `out`.
struct Workplace {
    folder: TempDir,
}

impl Workplace {
    fn new(writer: &Writer) -> Self {
        static MODEL: OnceLock<TempDir> = OnceLock::new();
        let model = MODEL.get_or_init(model);
        let folder = TempDir::with_prefix("faults").unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let workplace = Self { folder };
        let copy = format!("cp -r '{}/.' '{}'", model.path().display(), workplace.path().display());
        shell(&copy, LIMIT).unwrap();
        workplace.prepare(writer);
        workplace
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// `out` as it is before the command runs.
    fn prepare(&self, writer: &Writer) {
        let out = self.at("out");
        if out.exists() {
            fs::remove_dir_all(&out).unwrap();
        }
        fs::create_dir(&out).unwrap();
        for output in writer.outputs {
            if let Some(before) = writer.before.filter(|_| writer.outputs.first() == Some(output)) {
                copy_executable(&self.at(before), &out.join(output)).unwrap();
            }
        }
    }

    /// Runs `line` in this folder with the commands under test.
    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        let search = format!("{}:{}", self.at("bin").display(), std::env::var("PATH").unwrap());
        command.args(["-c", line]).current_dir(self.path()).env("PATH", search).env("REORDER_CACHE", "off");
        command
    }

    fn run(&self, line: &str) -> Outcome {
        process::run(&mut self.command(line), LIMIT).unwrap()
    }

    /// Names in `out`.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.at("out")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn output(&self, name: &str) -> Option<Vec<u8>> {
        fs::read(self.at("out").join(name)).ok()
    }

    /// Every output has its old contents, or those of `whole`.
    fn assert_old_or(&self, writer: &Writer, whole: &[Option<Vec<u8>>], when: &str) {
        for (output, whole) in writer.outputs.iter().zip(whole) {
            let found = self.output(output);
            let older = writer.older(self, output);
            assert!(
                found == older || found == *whole,
                "{}: {output} is neither old nor new {when}: {:?} bytes",
                writer.name,
                found.map(|found| found.len())
            );
        }
    }

    /// `out` is unchanged.
    fn assert_untouched(&self, writer: &Writer, outcome: &Outcome) {
        let before: Vec<&str> = writer.before.iter().flat_map(|_| writer.outputs.first().copied()).collect();
        assert_eq!(self.names(), before, "{}: {outcome}", writer.name);
        for output in writer.outputs {
            assert_eq!(self.output(output), writer.older(self, output), "{}: {outcome}", writer.name);
        }
    }
}

/// The parts of a workplace that are the same for all.
fn model() -> TempDir {
    let folder = TempDir::with_prefix("model").unwrap();
    let path = folder.path();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(path.join("bin")).unwrap();
    let wrapper = workspace::build("reorder-linker-plugin", &["--bins"]);
    copy_executable(workspace::reorder_path(), &path.join("bin/reorder")).unwrap();
    copy_executable(&wrapper.join("reorder-cc"), &path.join("bin/reorder-cc")).unwrap();
    let functions: String =
        (0..3000).map(|n| format!("int f{n}(int a) {{ return a * {n} + helper(a); }}\n")).collect();
    let calls: String = (0..3000).step_by(37).map(|n| format!("sum += f{n}(count);")).collect();
    let source = format!(
        "#include <stdio.h>\n__attribute__((noinline)) int helper(int a) {{ return a ^ 5; }}\n\
         #pragma GCC optimize(\"no-inline\")\n{functions}\
         int main(int count, char **words) {{ int sum = 0; {calls} printf(\"%d %s\\n\", sum, words[count - 1]); return 0; }}\n"
    );
    fs::write(path.join("main.c"), source).unwrap();
    let make = format!(
        "cd '{}' && gcc -O1 -fPIE -ffunction-sections -c main.c && gcc -pie main.o -o program && cp /bin/true older \
         && bin/reorder record -q -o traces -- ./program a",
        path.display()
    );
    shell(&make, LIMIT).unwrap();
    folder
}

/// The results of a run without a fault, in the same workplace: traces that are merged are told apart by their paths.
fn whole(workplace: &Workplace, writer: &Writer) -> Vec<Option<Vec<u8>>> {
    let outcome = workplace.run(writer.line);
    assert!(outcome.success(), "{}: {outcome}", writer.name);
    assert!(writer.is_adding || workplace.names() == writer.outputs, "{:?}", workplace.names());
    assert!(!workplace.names().is_empty());
    let outputs = writer.outputs.iter().map(|output| workplace.output(output)).collect();
    workplace.prepare(writer);
    outputs
}

/// `reorder` itself reports the error.
fn assert_explained(writer: &Writer, outcome: &Outcome) {
    let said = outcome.stderr_text();
    assert!(matches!(outcome.ending, Ending::Exited(status) if status > 0), "{}: {outcome}", writer.name);
    assert!(said.contains("error"), "{}: {outcome}", writer.name);
}

/// Simulates a full disk: the write fails half-way with an error, or the outputs are small enough to be complete.
fn a_limit_of_file_sizes(writer: &Writer) -> Result<(), Failed> {
    let workplace = Workplace::new(writer);
    let expected = whole(&workplace, writer);
    let outcome = workplace.run(&format!("trap '' XFSZ; ulimit -f 1; exec {}", writer.line));
    if outcome.success() {
        for (output, expected) in writer.outputs.iter().zip(&expected) {
            assert_eq!(workplace.output(output), *expected, "{}: {outcome}", writer.name);
        }
        if writer.is_adding {
            assert_traces_are_whole(&workplace);
        }
        return Ok(());
    }
    assert_explained(writer, &outcome);
    workplace.assert_untouched(writer, &outcome);
    Ok(())
}

fn a_folder_without_permission(writer: &Writer) -> Result<(), Failed> {
    let workplace = Workplace::new(writer);
    fs::set_permissions(workplace.at("out"), Permissions::from_mode(0o555)).unwrap();
    // The superuser may write everywhere.
    let somebody = match nix::unistd::geteuid().is_root() {
        true => "setpriv --reuid=65534 --regid=65534 --clear-groups ",
        false => "",
    };
    let outcome = workplace.run(&format!("exec {somebody}{}", writer.line));
    assert_explained(writer, &outcome);
    workplace.assert_untouched(writer, &outcome);
    fs::set_permissions(workplace.at("out"), Permissions::from_mode(0o755)).unwrap();
    Ok(())
}

fn no_folder(writer: &Writer) -> Result<(), Failed> {
    let workplace = Workplace::new(writer);
    fs::remove_dir_all(workplace.at("out")).unwrap();
    let outcome = workplace.run(writer.line);
    if writer.is_adding {
        // The traces are written into a folder that the command creates.
        assert!(outcome.success() && !workplace.names().is_empty(), "{outcome}");
        return Ok(());
    }
    assert_explained(writer, &outcome);
    assert!(!workplace.at("out").exists(), "{outcome}");
    Ok(())
}

fn a_folder_in_the_place(writer: &Writer) -> Result<(), Failed> {
    let workplace = Workplace::new(writer);
    let place = match writer.outputs.last() {
        Some(output) => workplace.at("out").join(output),
        None => workplace.at("out"),
    };
    if place.is_file() {
        fs::remove_file(&place).unwrap();
    }
    if writer.is_adding {
        fs::remove_dir(&place).unwrap();
        fs::write(&place, "a file in the place of the folder").unwrap();
    } else {
        fs::create_dir(&place).unwrap();
    }
    let outcome = workplace.run(writer.line);
    assert_explained(writer, &outcome);
    if !writer.is_adding {
        let name = place.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(workplace.names(), [name], "{outcome}");
    }
    Ok(())
}

/// The reader of the output is gone; that is no error, and the output is whole.
fn a_closed_pipe(writer: &Writer) -> Result<(), Failed> {
    let workplace = Workplace::new(writer);
    let expected = whole(&workplace, writer);
    // The reading end is closed before the command starts.
    let line =
        format!("mkfifo pipe; exec 3<>pipe; exec 4>pipe; exec 3<&-; rm pipe; exec {} >&4 4>&-", writer.line);
    let outcome = workplace.run(&line);
    if writer.is_adding {
        // The traced program writes into the pipe, and dies of SIGPIPE as it would without us.
        assert_eq!(
            outcome.ending,
            Ending::Exited(128 + nix::sys::signal::Signal::SIGPIPE as i32),
            "{outcome}"
        );
        assert_traces_are_whole(&workplace);
        return Ok(());
    }
    assert!(outcome.success(), "{}: {outcome}", writer.name);
    for (output, expected) in writer.outputs.iter().zip(expected) {
        assert_eq!(workplace.output(output), expected, "{}: {output}", writer.name);
    }
    Ok(())
}

/// With any limit of memory and any outcome, no output is incomplete.
fn a_limit_of_memory(writer: &Writer) -> Result<(), Failed> {
    let workplace = Workplace::new(writer);
    let expected = whole(&workplace, writer);
    // A link that cannot be ordered is still made, as the linker alone makes it.
    let plain = workplace.run("gcc main.o -o plain");
    assert!(plain.success(), "{plain}");
    let plain = fs::read(workplace.at("plain")).ok();
    for mebibytes in [16, 24, 32, 48, 64, 96, 160, 320] {
        workplace.prepare(writer);
        let limited = format!("ulimit -v {}; exec {}", mebibytes << 10, writer.line);
        let outcome = workplace.run(&limited);
        assert!(outcome.ending != Ending::TimedOut, "{}: {outcome}", writer.name);
        if writer.is_adding {
            assert_traces_are_whole(&workplace);
        }
        if writer.name == "reorder-cc" && workplace.output(writer.outputs[0]) == plain {
            assert!(outcome.success(), "{outcome}");
            continue;
        }
        workplace.assert_old_or(writer, &expected, &format!("with {mebibytes} MiB"));
        if outcome.success() {
            for (output, expected) in writer.outputs.iter().zip(&expected) {
                assert_eq!(workplace.output(output), *expected, "{}: {output}", writer.name);
            }
        }
    }
    Ok(())
}

/// Times from the start to the end of a run, spread evenly.
fn killed(writer: &Writer) -> Result<(), Failed> {
    const MOMENTS: u32 = 50;
    let workplace = Workplace::new(writer);
    let expected = whole(&workplace, writer);
    let begun = Instant::now();
    workplace.run(writer.line);
    let whole_time = begun.elapsed();
    for moment in 0..MOMENTS {
        workplace.prepare(writer);
        let mut command = workplace.command(&format!("exec {}", writer.line));
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(whole_time * moment / MOMENTS);
        let _ = child.kill();
        child.wait().unwrap();
        wait_for_others(&workplace);
        // Linkers remove the old output when they begin, and so may a wrapper of one.
        workplace.assert_old_or(writer, &expected, &format!("killed after {moment} of {MOMENTS} parts"));
        if writer.is_adding {
            assert_traces_are_whole(&workplace);
        }
    }
    Ok(())
}

/// Children of the killed process, such as a linker or a traced program, end with it.
fn wait_for_others(workplace: &Workplace) {
    let begun = Instant::now();
    let is_ours = |entry: &fs::DirEntry| {
        fs::read_link(entry.path().join("cwd")).is_ok_and(|folder| folder == workplace.path())
            && fs::read(entry.path().join("cmdline")).is_ok_and(|words| !words.is_empty())
    };
    while fs::read_dir("/proc").unwrap().flatten().any(|entry| is_ours(&entry)) {
        assert!(begun.elapsed() < LIMIT, "a process goes on");
        sleep(Duration::from_millis(5));
    }
}

fn assert_traces_are_whole(workplace: &Workplace) {
    for name in workplace.names().iter().filter(|name| !name.starts_with('.')) {
        let outcome = workplace.run(&format!("reorder traces show -q 'out/{name}'"));
        assert!(outcome.success(), "{name} is no whole trace: {outcome}");
    }
}

/// A library that takes long enough to read, in a workplace of its own, with the results of a run without faults.
fn large_image(writer: &Writer) -> (Workplace, Vec<u8>, Duration) {
    let workplace = Workplace::new(writer);
    let library = "$(readlink -f \"$(gcc -print-file-name=libstdc++.so.6)\")";
    shell(&format!("cp {library} '{}'", workplace.at("large").display()), LIMIT).unwrap();
    let begun = Instant::now();
    let outcome = workplace.run("reorder apply large --strategy random -o out/new");
    assert!(outcome.success(), "{outcome}");
    let made = fs::read(workplace.at("out/new")).unwrap();
    fs::remove_file(workplace.at("out/new")).unwrap();
    (workplace, made, begun.elapsed())
}

const APPLY: Writer = Writer::new("apply", "reorder apply large --strategy random -o out/new", &["new"]);
const MOMENTS: u32 = 20;

fn truncated_input() -> Result<(), Failed> {
    let (workplace, made, whole_time) = large_image(&APPLY);
    let image = fs::read(workplace.at("large")).unwrap();
    let mut refused = 0;
    for moment in 0..MOMENTS {
        // A new file each time: the one that was made shorter may still be mapped.
        fs::remove_file(workplace.at("large")).unwrap();
        fs::write(workplace.at("large"), &image).unwrap();
        workplace.prepare(&APPLY);
        let mut command = workplace.command(&format!("exec {}", APPLY.line));
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        sleep(whole_time * moment / MOMENTS);
        let file = fs::OpenOptions::new().write(true).open(workplace.at("large")).unwrap();
        file.set_len(image.len() as u64 / 3).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        match ended.status.code() {
            Some(0) => assert!(workplace.output("new").as_ref() == Some(&made), "another output: {said}"),
            Some(2) => {
                refused += 1;
                assert!(said.starts_with("error: "), "{said}");
                assert_eq!(workplace.names(), [""; 0], "{said}");
            }
            _ => return Err(format!("{:?}: {said}", ended.status).into()),
        }
    }
    // How many depends on the system; the first comes before any reading.
    assert!(refused > 0, "no run met the fault");
    Ok(())
}

/// A file that another process puts at the image's path is kept; only two system calls lie between the last check
/// and the rename.
fn replaced_input() -> Result<(), Failed> {
    let (workplace, _, whole_time) = large_image(&APPLY);
    let image = fs::read(workplace.at("large")).unwrap();
    for moment in 0..MOMENTS {
        fs::write(workplace.at("out/image"), &image).unwrap();
        fs::write(workplace.at("next"), b"what the next build made").unwrap();
        let line = "exec reorder apply out/image --strategy random --in-place";
        let mut command = workplace.command(line);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        sleep(whole_time * moment / MOMENTS);
        fs::rename(workplace.at("next"), workplace.at("out/image")).unwrap();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(
            workplace.output("image").unwrap(),
            b"what the next build made",
            "after {moment} parts: {said}"
        );
        assert_eq!(workplace.names(), ["image"], "{said}");
        let is_told =
            said.contains("changed while it was read") || said.contains("neither an ELF nor a Mach-O");
        assert!(ended.status.success() || is_told, "{:?}: {said}", ended.status);
    }
    Ok(())
}
