//! The functions that the linker calls.
//!
//! Each hook runs guarded: a panic becomes a message and an error status, because unwinding through a linker's C++ is
//! undefined. The link's state is global, since hooks are given no context; a linker makes one link in its life. It is
//! guarded by a mutex because gold may read inputs on several threads.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use super::abi::{InputFile, Level, Status, TransferEntry};
use super::host::{Host, Offer};
use super::session::Session;

static SESSION: Mutex<Option<Session>> = Mutex::new(None);

/// The entry of the plugin.
///
/// # Safety
/// `vector` is a transfer vector as `plugin-api.h` describes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn onload(vector: *const TransferEntry) -> Status {
    guarded(None, || {
        // SAFETY: as this function demands.
        let offer = unsafe { Offer::read(vector) };
        let host = offer.host;
        guarded(Some(host), || {
            let (session, status) = Session::start(offer);
            *SESSION.lock().unwrap_or_else(PoisonError::into_inner) = session;
            // Without a session they have no effect; mold calls the first of them whether it is there or not.
            match status {
                Status::OK => register(&host),
                status => status,
            }
        })
    })
}

fn register(host: &Host) -> Status {
    let mut statuses = Vec::new();
    // SAFETY: the hooks are functions of this library, which stays loaded as long as the linker runs.
    unsafe {
        statuses.extend(host.register_claim_file.map(|register| register(claim_file)));
        statuses.extend(host.register_all_symbols_read.map(|register| register(all_symbols_read)));
        statuses.extend(host.register_new_input.map(|register| register(new_input)));
        statuses.extend(host.register_cleanup.map(|register| register(cleanup)));
    }
    statuses.into_iter().find(|status| *status != Status::OK).unwrap_or(Status::OK)
}

unsafe extern "C" fn claim_file(file: *const InputFile, claimed: *mut c_int) -> Status {
    // SAFETY: the linker gives a place for the answer, or none.
    if let Some(claimed) = unsafe { claimed.as_mut() } {
        *claimed = 0;
    }
    // SAFETY: the linker gives a file that is open and stays as it is during the hook.
    in_session(|session| unsafe { file.as_ref().map_or(Status::OK, |file| session.take(file)) })
}

unsafe extern "C" fn new_input(file: *const InputFile) -> Status {
    // SAFETY: the linker gives a file that is open and stays as it is during the hook.
    in_session(|session| unsafe { file.as_ref().map_or(Status::OK, |file| session.take_late(file)) })
}

unsafe extern "C" fn all_symbols_read() -> Status {
    in_session(Session::order)
}

/// The last hook: no more objects come, and the sections have their places.
unsafe extern "C" fn cleanup() -> Status {
    in_session(Session::tell)
}

fn in_session(work: impl FnOnce(&mut Session) -> Status) -> Status {
    // A poisoned session belongs to a hook that panicked; its own guard has reported it, and what it has read is complete.
    let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(session) = session.as_mut() else { return Status::OK };
    let host = *session.host();
    guarded(Some(host), || work(session))
}

fn guarded(host: Option<Host>, work: impl FnOnce() -> Status) -> Status {
    // Unfinished results are not used after an error status.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        // Printing is the linker's code, but `say` itself could panic only for lack of memory, which aborts.
        if let Some(host) = host {
            host.say(Level::Error, "reorder: the plugin failed; please report the message above it");
        }
        Status::ERROR
    })
}
