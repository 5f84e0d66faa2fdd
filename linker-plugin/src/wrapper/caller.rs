//! Ends this process when the one that called the compiler is killed.
//!
//! gcc starts its linker through `collect2`, which goes on when gcc is killed. So our first process leaves its number
//! and start time in a variable, and the second, called as the linker, watches it.

use std::ffi::OsString;

use super::environment::Environment;

/// Number and start time of the process that called the compiler.
pub(crate) const VARIABLE: &str = "REORDER_CALLER";

/// The value of [`VARIABLE`] for this process.
pub(crate) fn this_process() -> OsString {
    let number = std::process::id();
    match start_time(number) {
        Some(time) => format!("{number}:{time}").into(),
        None => OsString::new(),
    }
}

/// Watches the process that called the compiler which called us, if there is one: when it ends before us, we end, and
/// with us the linker that is tied to us. Where the system has no means for that, the process is not watched.
pub(crate) fn follow(environment: &Environment) {
    let caller = environment.variable(VARIABLE).and_then(|value| value.to_str()).and_then(|value| {
        let (number, time) = value.split_once(':')?;
        Some((number.parse::<u32>().ok()?, time.to_owned()))
    });
    if let Some((number, time)) = caller {
        watch(number, &time);
    }
}

/// Whether [`follow`] has a process to watch.
pub(crate) fn is_watched(environment: &Environment) -> bool {
    environment.variable(VARIABLE).is_some()
}

/// When process `number` was started, in ticks since boot; distinguishes it from a later one of the same number.
#[cfg(target_os = "linux")]
fn start_time(number: u32) -> Option<String> {
    let status = std::fs::read(format!("/proc/{number}/stat")).ok()?;
    // The name, in parentheses, may hold anything; 20 fields after it is the time.
    let end = status.iter().rposition(|&byte| byte == b')')?;
    String::from_utf8_lossy(&status[end + 1..]).split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(target_os = "linux")]
fn watch(number: u32, time: &str) {
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    let Ok(number) = i32::try_from(number) else { return };
    // SAFETY: the call takes two integers and gives a new descriptor or -1.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
    let Ok(descriptor @ 0..) = i32::try_from(descriptor) else { return };
    // SAFETY: the descriptor was just made and has no other owner.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    if start_time(number.unsigned_abs()).as_deref() != Some(time) {
        return;
    }
    // Without a thread the link goes on unwatched, as it would without us.
    let _ = std::thread::Builder::new().name("caller".to_owned()).spawn(move || {
        let mut entry = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        loop {
            // SAFETY: one entry that lives on this stack.
            let ready = unsafe { libc::poll(&raw mut entry, 1, -1) };
            if ready == 1 && entry.revents & libc::POLLIN != 0 {
                // SAFETY: ends the process at once; what is tied to it ends too, and drafts are not removed.
                unsafe { libc::_exit(128 + libc::SIGKILL) };
            }
            if ready < 0 && std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return;
            }
        }
    });
}

#[cfg(not(target_os = "linux"))]
fn start_time(_number: u32) -> Option<String> {
    None
}

#[cfg(not(target_os = "linux"))]
fn watch(_number: u32, _time: &str) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_number_and_time() {
        let text = this_process().into_string().unwrap();
        let (number, time) = text.split_once(':').unwrap();
        assert_eq!(number.parse::<u32>().unwrap(), std::process::id());
        assert!(time.parse::<u64>().unwrap() > 0);
        assert_eq!(start_time(u32::MAX), None);
    }
}
