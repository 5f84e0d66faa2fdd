//! Starts the program as a tracee, stopped before its first instruction.
//!
//! The child waits on a pipe until it is seized, then executes the program, so the program sees no signal and no stop
//! that an untraced program would not see.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use super::RecordRequest;
use crate::processor::{self, Purpose};
use crate::{runnable, start_directory, start_failure};
use reorder_base::error::{Error, Result};

/// All that the child needs between fork and exec, made before the fork: it must not allocate.
struct Prepared {
    path: CString,
    arguments: Vec<CString>,
    directory: Option<CString>,
    /// All variables, unless the program inherits those of this process as they are.
    environment: Option<Vec<CString>>,
    discard: Option<File>,
}

/// A program on its way to its first instruction.
#[derive(Debug)]
pub(super) struct Launched {
    /// Its process; the first stop to wait for is a `PTRACE_EVENT_EXEC`.
    pub(super) process: Pid,
    path: PathBuf,
    failure: File,
}

impl Launched {
    /// Why the process ended before it executed the program.
    pub(super) fn failure(mut self) -> Error {
        let mut number = [0; 4];
        match self.failure.read_exact(&mut number) {
            Ok(()) => {
                let error = std::io::Error::from_raw_os_error(i32::from_le_bytes(number));
                start_failure::explain(&self.path, error)
            }
            Err(_) => Error::usage("ended before it could be started").in_file(&self.path),
        }
    }
}

/// Starts the program of `request` traced.
///
/// # Errors
/// Programs that do not exist or cannot be executed, and systems that forbid tracing.
pub(super) fn launch(request: &RecordRequest) -> Result<Launched> {
    let path = find_program(&request.program)?;
    // The child changes its directory before it executes the program.
    let path = match &request.directory {
        Some(_) => std::path::absolute(&path).map_err(|error| Error::io(&path, error))?,
        None => path,
    };
    runnable::check(&path, runnable::apply_command)?;
    processor::check_program(&path, Purpose::Record)?;
    refuse_privileged(&path)?;
    if let Some(directory) = &request.directory {
        start_directory::check(directory)?;
    }
    let prepared = prepare(&path, request)?;
    start(&prepared, path)
}

fn prepare(path: &Path, request: &RecordRequest) -> Result<Prepared> {
    let text = |word: &OsStr| {
        CString::new(word.as_bytes()).map_err(|_| Error::usage(format!("{word:?} holds a zero byte")))
    };
    let null = Path::new("/dev/null");
    let open_null =
        || File::options().read(true).write(true).open(null).map_err(|error| Error::io(null, error));
    let arguments = std::iter::once(&request.program).chain(&request.arguments);
    Ok(Prepared {
        path: text(path.as_os_str())?,
        arguments: arguments.map(|word| text(word)).collect::<Result<_>>()?,
        directory: request.directory.as_ref().map(|directory| text(directory.as_os_str())).transpose()?,
        environment: environment(&request.environment, &text)?,
        discard: request.discard_output.then(open_null).transpose()?,
    })
}

/// The variables of this process with `changes`; `None` when there are no changes.
fn environment(
    changes: &[(OsString, OsString)],
    text: &impl Fn(&OsStr) -> Result<CString>,
) -> Result<Option<Vec<CString>>> {
    if changes.is_empty() {
        return Ok(None);
    }
    let mut variables: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    variables.extend(changes.iter().cloned());
    let joined = variables.into_iter().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        text(&name)
    });
    joined.collect::<Result<_>>().map(Some)
}

fn start(prepared: &Prepared, path: PathBuf) -> Result<Launched> {
    let io_error = |error: Errno| Error::io(&path, error.into());
    let (go_reader, go_writer) = pipe2(OFlag::O_CLOEXEC).map_err(io_error)?;
    let (failure_reader, failure_writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(io_error)?;
    let mut pointers: Vec<*const libc::c_char> =
        prepared.arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let variables: Option<Vec<*const libc::c_char>> = prepared.environment.as_ref().map(|variables| {
        variables.iter().map(|variable| variable.as_ptr()).chain([std::ptr::null()]).collect()
    });
    // SAFETY: the child calls `execute` only, which is restricted to async-signal-safe calls and never returns.
    let forked = unsafe { fork() }.map_err(io_error)?;
    let child = match forked {
        ForkResult::Child => {
            // The child's copy of the writing end must not keep its own reading end open forever.
            execute(
                prepared,
                &pointers,
                variables.as_deref(),
                [go_reader.as_raw_fd(), go_writer.as_raw_fd()],
                failure_writer.as_raw_fd(),
            )
        }
        ForkResult::Parent { child } => child,
    };
    drop((go_reader, failure_writer));
    let options = Options::PTRACE_O_EXITKILL
        | Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK;
    if let Err(error) = ptrace::seize(child, options) {
        // It must not remain, alive or as a zombie; both calls can only fail if it is gone.
        let _ = kill(child, Signal::SIGKILL);
        let _ = waitpid(child, None);
        return Err(forbidden(&path, error));
    }
    File::from(go_writer).write_all(&[1]).map_err(|error| Error::io(&path, error))?;
    Ok(Launched { process: child, path, failure: File::from(failure_reader) })
}

/// The child's part: waits for the go-ahead and executes the program.
fn execute(
    prepared: &Prepared,
    arguments: &[*const libc::c_char],
    variables: Option<&[*const libc::c_char]>,
    go: [RawFd; 2],
    failure: RawFd,
) -> ! {
    let [go_reader, go_writer] = go;
    // SAFETY: only async-signal-safe functions are called, on descriptors that are open in this process and on
    // memory that the parent prepared: `arguments` and `variables` end with a null pointer and point to strings that
    // outlive the call. `environ` is not written meanwhile, because this process has one thread only.
    unsafe {
        libc::close(go_writer);
        let mut go_ahead = 0u8;
        if libc::read(go_reader, (&raw mut go_ahead).cast(), 1) != 1 {
            libc::_exit(127);
        }
        // The Rust runtime ignores broken pipes; programs expect the default.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if let Some(null) = &prepared.discard {
            for descriptor in 0..=2 {
                libc::dup2(null.as_raw_fd(), descriptor);
            }
        }
        let is_there =
            prepared.directory.as_ref().is_none_or(|directory| libc::chdir(directory.as_ptr()) == 0);
        if is_there {
            let variables = variables.map_or(environ.cast(), <[_]>::as_ptr);
            libc::execve(prepared.path.as_ptr(), arguments.as_ptr(), variables);
        }
        let number = Errno::last_raw().to_le_bytes();
        libc::write(failure, number.as_ptr().cast(), number.len());
        libc::_exit(127)
    }
}

unsafe extern "C" {
    /// The environment of this process, which the program inherits.
    static environ: *const *const libc::c_char;
}

fn forbidden(path: &Path, error: Errno) -> Error {
    let hint = if error == Errno::EPERM {
        "tracing is forbidden here: in a container, start it with --cap-add=SYS_PTRACE; if \
         /proc/sys/kernel/yama/ptrace_scope is 3, set it to 1; another debugger or a sandbox forbids it, too"
    } else {
        "the system does not support tracing (a sandbox such as gVisor, or an emulator)"
    };
    let mut failure = Error::io(path, error.into());
    failure.message = "cannot be traced".to_owned();
    failure.with_hint(hint)
}

/// The file that `program` names, looked up as a shell does.
///
/// # Errors
/// There is none.
pub fn find_program(program: &OsStr) -> Result<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let search_path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&search_path)
        .map(|directory| directory.join(program))
        .find(|candidate| {
            fs::metadata(candidate)
                .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(|| {
            Error::usage(format!("no program called {} in PATH", program.display()))
                .with_hint(format!("give its path, such as ./{}", program.display()))
        })
}

/// Programs that gain privileges lose them when traced by an ordinary user, and would then behave differently.
fn refuse_privileged(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|error| Error::io(path, error))?;
    let sets_identity = metadata.permissions().mode() & 0o6000 != 0;
    if sets_identity && !nix::unistd::geteuid().is_root() {
        return Err(Error::usage("a setuid or setgid program runs without its privileges when it is traced")
            .in_file(path)
            .with_hint("record it as root, or record a copy without the setuid bit"));
    }
    Ok(())
}
