//! A child that waits between fork and exec until it is told to go on, so that a tracer can seize it before its first
//! instruction and no signal is sent for that.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, RawFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{ForkResult, Pid, fork, pipe2};

/// All that the child needs between fork and exec, made before the fork: it must not allocate.
#[derive(Debug)]
pub struct Prepared {
    /// The program.
    pub path: CString,
    /// Its words, its name first.
    pub arguments: Vec<CString>,
    /// Where it starts, unless where this process is.
    pub directory: Option<CString>,
    /// All variables, unless the program inherits those of this process as they are.
    pub environment: Option<Vec<CString>>,
    /// What stands for standard input, output and error, each unless it is inherited.
    pub streams: [Option<File>; 3],
    /// Whether it leads a session of its own, so that no terminal stops it or what it leaves running.
    pub own_session: bool,
}

/// A child that waits.
#[derive(Debug)]
pub struct WaitingChild {
    /// Its process.
    pub process: Pid,
    /// Gives the system's error number (four bytes) when the program cannot be executed, and its end when it is.
    pub failure: File,
    /// One byte written here lets the child execute the program; without it the child ends with this process.
    pub go_ahead: File,
}

/// Forks a child that executes the program of `prepared` when it is told to.
///
/// # Errors
/// When the system has no process or no pipe left.
pub fn fork_waiting(prepared: &Prepared) -> io::Result<WaitingChild> {
    let (go_reader, go_writer) = pipe2(OFlag::O_CLOEXEC)?;
    let (failure_reader, failure_writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let mut pointers: Vec<*const libc::c_char> =
        prepared.arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let variables: Option<Vec<*const libc::c_char>> = prepared.environment.as_ref().map(|variables| {
        variables.iter().map(|variable| variable.as_ptr()).chain([std::ptr::null()]).collect()
    });
    // SAFETY: the child calls `execute` only, which is restricted to async-signal-safe calls and never returns.
    let process = match unsafe { fork() }? {
        // The child's copy of the writing end must not keep its own reading end open for ever.
        ForkResult::Child => execute(
            prepared,
            &pointers,
            variables.as_deref(),
            [go_reader.as_raw_fd(), go_writer.as_raw_fd()],
            failure_writer.as_raw_fd(),
        ),
        ForkResult::Parent { child } => child,
    };
    Ok(WaitingChild { process, failure: File::from(failure_reader), go_ahead: File::from(go_writer) })
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
        if prepared.own_session {
            libc::setsid();
        }
        for (descriptor, stream) in (0..).zip(&prepared.streams) {
            if let Some(stream) = stream {
                libc::dup2(stream.as_raw_fd(), descriptor);
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
