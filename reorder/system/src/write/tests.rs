//! Real files, links, attributes, limits and a killed writer.

use std::ffi::CStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::*;

/// Set in the process that plays the writer of a test about two processes.
const WRITER: &str = "REORDER_TEST_WRITER";

struct Fixture {
    directory: TempDir,
    input: PathBuf,
    output: PathBuf,
}

fn fixture() -> Fixture {
    let directory = TempDir::new().expect("a temporary directory");
    let input = directory.path().join("input");
    let output = directory.path().join("output");
    fs::write(&input, "input").expect("the input is written");
    Fixture { directory, input, output }
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the directory is readable");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn set_attribute(path: &Path, name: &CStr, value: &[u8]) {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no null byte");
    // SAFETY: both strings end in a null byte; the pointer and the length describe one slice.
    let outcome =
        unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}

fn attribute(path: &Path, name: &CStr) -> Option<Vec<u8>> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).expect("no null byte");
    let mut value = vec![0; 256];
    // SAFETY: both strings end in a null byte; the pointer and the length describe one writable slice.
    let length =
        unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(usize::try_from(length).ok()?);
    Some(value)
}

#[test]
fn the_output_takes_mode_owner_and_attributes_but_not_times() {
    let files = fixture();
    let root = nix::unistd::geteuid().is_root();
    if root {
        std::os::unix::fs::chown(&files.input, Some(1234), Some(4321)).expect("root may give files away");
    }
    fs::set_permissions(&files.input, fs::Permissions::from_mode(0o4755))
        .expect("the owner may set the mode");
    set_attribute(&files.input, c"user.origin", b"here");
    // cap_net_bind_service=ep in the layout of revision 2 of `struct vfs_cap_data`.
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    if root {
        set_attribute(&files.input, c"security.capability", &capability);
    }
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    fs::File::options()
        .write(true)
        .open(&files.input)
        .and_then(|file| file.set_modified(long_ago))
        .expect("times can be set");

    let warnings = replace(&files.output, &files.input, b"output", ReplaceOptions::default());

    let told: Vec<String> =
        warnings.expect("the output is written").iter().map(ToString::to_string).collect();
    let wanted: &[&str] = match root {
        true => &["set-id bits (mode 4755)", "file capabilities"],
        false => &["set-id bits (mode 4755)"],
    };
    assert_eq!(told.len(), wanted.len(), "{told:?}");
    assert!(wanted.iter().zip(&told).all(|(wanted, told)| told.contains(wanted)), "{told:?}");
    let metadata = fs::metadata(&files.output).expect("the output exists");
    assert_eq!(metadata.mode() & 0o7777, 0o4755);
    assert_eq!(attribute(&files.output, c"user.origin").as_deref(), Some(b"here".as_slice()));
    assert_ne!(metadata.modified().expect("a time"), long_ago);
    if root {
        assert_eq!((metadata.uid(), metadata.gid()), (1234, 4321));
        assert_eq!(attribute(&files.output, c"security.capability").as_deref(), Some(capability.as_slice()));
    }
    assert_eq!(fs::read(&files.output).expect("readable"), b"output");
}

#[test]
fn rights_are_told_only_where_there_are_any() {
    let files = fixture();
    let in_place = ReplaceOptions { in_place: true };
    fs::set_permissions(&files.input, fs::Permissions::from_mode(0o2755)).expect("the owner may");
    let warnings = replace(&files.input, &files.input, b"new", in_place).expect("replaced");
    assert_eq!(warnings, [], "the file had these rights before");
    let lost = |drops_set_id| Warning::OwnerNotKept { reason: "no".to_owned(), drops_set_id }.to_string();
    assert!(!lost(false).contains("set-id") && lost(true).contains("set-id bits are dropped"));
    if nix::unistd::geteuid().is_root() {
        return;
    }
    // Only root may give a file to the owner of this one.
    let like = Path::new("/usr/bin/env");
    let warnings = replace(&files.output, like, b"new", ReplaceOptions::default()).expect("written");
    assert_eq!(warnings, [], "a copy is its maker's, and no right is lost");
}

#[test]
fn a_hard_link_is_told_and_keeps_the_old_contents() {
    let files = fixture();
    let other = files.directory.path().join("other");
    fs::write(&files.output, "old").expect("writable");
    fs::hard_link(&files.output, &other).expect("links are possible");
    let warnings = replace(&files.output, &files.input, b"new", ReplaceOptions::default()).expect("replaced");
    assert_eq!(warnings, [Warning::HardLinks { other_names: 1 }]);
    assert_eq!(fs::read(&other).expect("readable"), b"old");
    assert_eq!(fs::read(&files.output).expect("readable"), b"new");
}

#[test]
fn a_symbolic_link_stays_and_its_target_is_replaced() {
    let files = fixture();
    let link = files.directory.path().join("link");
    for target_exists in [false, true] {
        assert_eq!(files.output.exists(), target_exists);
        let _ = fs::remove_file(&link);
        // A relative link is relative to its own directory, not to the working directory.
        symlink("output", &link).expect("links are possible");
        replace(&link, &files.input, b"new", ReplaceOptions::default()).expect("replaced");
        assert_eq!(fs::read_link(&link).expect("still a link"), Path::new("output"));
        assert_eq!(fs::read(&files.output).expect("readable"), b"new");
    }
    let circle = files.directory.path().join("circle");
    symlink("circle", &circle).expect("links are possible");
    assert!(replace(&circle, &files.input, b"new", ReplaceOptions::default()).is_err());
}

#[test]
fn the_input_is_replaced_only_when_asked_for() {
    let files = fixture();
    symlink("input", &files.output).expect("links are possible");
    let error = replace(&files.output, &files.input, b"new", ReplaceOptions::default());
    assert!(error.expect_err("the output is the input").to_string().contains("is the input"));
    assert_eq!(fs::read(&files.input).expect("readable"), b"input");
    replace(&files.output, &files.input, b"new", ReplaceOptions { in_place: true }).expect("asked for");
    assert_eq!(fs::read(&files.input).expect("readable"), b"new");
}

#[test]
fn a_running_program_can_be_replaced() {
    let files = fixture();
    // `cp` holds the file open for writing, not this process, whose other threads may fork at any time and pass
    // the open file on: running it would then fail with ETXTBSY.
    let copied = Command::new("cp").arg("/bin/sleep").arg(&files.output).status();
    assert!(copied.expect("cp runs").success());
    let mut running = Command::new(&files.output).arg("5").spawn().expect("it runs");
    let replaced = replace(&files.output, &files.input, b"new", ReplaceOptions::default());
    running.kill().expect("ours");
    running.wait().expect("ours");
    replaced.expect("a new inode does not disturb it");
    assert_eq!(fs::read(&files.output).expect("readable"), b"new");
}

#[test]
fn an_unwritable_place_is_an_error_without_leftovers() {
    let files = fixture();
    let impossible =
        [files.directory.path().join("missing/output"), files.input.join("output"), "/proc/self/x".into()];
    for output in impossible {
        assert!(replace(&output, &files.input, b"new", ReplaceOptions::default()).is_err(), "{output:?}");
        assert!(whole(&output, b"new").is_err(), "{output:?}");
    }
    let directory = replace(files.directory.path(), &files.input, b"new", ReplaceOptions::default());
    assert!(directory.is_err());
    assert_eq!(names_in(files.directory.path()), ["input"]);
}

#[test]
fn text_outputs_keep_an_existing_mode_and_reach_devices() {
    let files = fixture();
    fs::set_permissions(&files.input, fs::Permissions::from_mode(0o640)).expect("ours");
    whole(&files.input, b"text").expect("written");
    assert_eq!(fs::metadata(&files.input).expect("exists").mode() & 0o7777, 0o640);
    whole(&files.output, b"text").expect("written");
    assert_eq!(fs::metadata(&files.output).expect("exists").mode() & 0o111, 0);
    whole(Path::new("/dev/null"), b"text").expect("devices are written directly");
    assert!(whole(Path::new("/dev/full"), b"text").is_err());
    assert_eq!(names_in(files.directory.path()), ["input", "output"]);
}

/// Runs this very test in a process of its own, which plays the writer to `output`.
fn writer(test: &str, output: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the test knows itself"));
    command.args(["--exact", test, "--nocapture"]).env(WRITER, output).stdout(Stdio::null());
    command
}

#[test]
fn a_full_disk_leaves_the_old_file() {
    use nix::sys::resource::{Resource, setrlimit};
    use nix::sys::signal::{SigHandler, Signal, signal};

    const LIMIT: usize = 1 << 16;
    if let Some(output) = std::env::var_os(WRITER) {
        // SAFETY: ignoring a signal installs no handler; writes past the limit then fail with EFBIG.
        unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.expect("may be ignored");
        setrlimit(Resource::RLIMIT_FSIZE, LIMIT as u64, LIMIT as u64).expect("limits may be lowered");
        let output = Path::new(&output);
        let input = output.with_file_name("input");
        let bytes = vec![b'n'; LIMIT + 1];
        let refused = replace(output, &input, &bytes, ReplaceOptions::default());
        assert!(refused.expect_err("it does not fit").to_string().contains("File too large"));
        assert!(whole(output, &bytes).is_err());
        return;
    }
    let files = fixture();
    fs::write(&files.output, "old").expect("writable");
    let status = writer("write::tests::a_full_disk_leaves_the_old_file", &files.output).status();
    assert!(status.expect("the writer runs").success());
    assert_eq!(fs::read(&files.output).expect("readable"), b"old");
    assert_eq!(names_in(files.directory.path()), ["input", "output"]);
}

/// Whether the file holds the second generation, or a later one.
fn is_written_again(output: &Path) -> bool {
    use std::io::Read as _;
    let mut first = [0];
    fs::File::open(output).and_then(|mut file| file.read_exact(&mut first)).is_ok_and(|()| first[0] > 0)
}

#[test]
fn a_killed_writer_leaves_one_whole_file() {
    const SIZE: usize = 4 << 20;
    if let Some(output) = std::env::var_os(WRITER) {
        let output = Path::new(&output);
        let input = output.with_file_name("input");
        for generation in 0_u8.. {
            replace(output, &input, &vec![generation; SIZE], ReplaceOptions::default()).expect("written");
        }
    }
    let files = fixture();
    let mut last_generation = 0;
    for round in 0..12 {
        fs::write(&files.output, vec![0; SIZE]).expect("writable");
        let mut running = writer("write::tests::a_killed_writer_leaves_one_whole_file", &files.output)
            .spawn()
            .expect("runs");
        if round % 2 == 1 {
            // However busy the system is, some writers come as far as this.
            while !is_written_again(&files.output) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        std::thread::sleep(Duration::from_millis(20 + 7 * round));
        running.kill().expect("ours");
        running.wait().expect("ours");
        let bytes = fs::read(&files.output).expect("the output is always there");
        assert_eq!(bytes.len(), SIZE);
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a mixture of two generations");
        last_generation = last_generation.max(bytes[0]);
    }
    assert!(last_generation > 0, "no writer was alive long enough to write");
    for name in names_in(files.directory.path()) {
        let expected = name == "input" || name == "output" || name.starts_with(".output.reorder-");
        assert!(expected, "{name} is not explained");
    }
}

#[test]
fn files_that_belong_together_appear_together_or_not_at_all() {
    let directory = TempDir::new().expect("a temporary directory");
    let at = |name: &str| directory.path().join(name);
    fs::write(at("old"), "old").expect("a file is written");
    let before = fs::metadata(at("old")).expect("the file exists").ino();
    let files = |names: [&str; 3]| {
        names.map(|name| Pending::whole(&at(name), b"new").expect("there is room")).into_iter().collect()
    };

    let all: Vec<Pending> = files(["old", "fresh", "late"]);
    assert_eq!(names_in(directory.path()).len(), 4, "nothing has its name before all are written");
    // The last name is refused after the others were given.
    fs::create_dir(at("late")).expect("a directory is made");
    together(all).expect_err("a file cannot replace a directory");
    assert_eq!(names_in(directory.path()), ["late", "old"]);
    assert_eq!(fs::read(at("old")).expect("the file is readable"), b"old");
    assert_eq!(fs::metadata(at("old")).expect("the file exists").ino(), before);

    drop(files(["old", "fresh", "later"]));
    assert_eq!(names_in(directory.path()), ["late", "old"]);
    assert_eq!(together(files(["old", "fresh", "later"])).expect("all can be written"), []);
    assert_eq!(names_in(directory.path()), ["fresh", "late", "later", "old"]);
    assert_eq!(fs::read(at("old")).expect("the file is readable"), b"new");
}
