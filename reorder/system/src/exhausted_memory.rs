//! Ends the process with a message when the system has no more memory for it.
//!
//! The standard library aborts with a backtrace then, which reads like a defect of ours and has a status of its own.

use std::alloc::{GlobalAlloc, Layout, System};

/// The message. There is no memory to say how much was wanted.
const MESSAGE: &[u8] = b"error: the system gives this process no more memory\n\
hint: raise its limit (ulimit -v, the memory of the container), use a smaller image, or fewer threads\n";

/// The exit status of every command that could not run.
const STATUS: i32 = 2;

/// The allocator of the system, which ends the process where that one fails. For programs, not for libraries.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExplainingAllocator;

/// `pointer`, unless the system refused.
fn given(pointer: *mut u8) -> *mut u8 {
    if pointer.is_null() {
        // SAFETY: the pointer and the length are those of a constant; neither call allocates, and the second does not return.
        // Outputs are renamed only when they are complete, so none is left incomplete.
        unsafe {
            libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
            libc::_exit(STATUS);
        }
    }
    pointer
}

// SAFETY: every call is passed on unchanged to the system's allocator, which has this contract, and what that one returns
// is returned.
unsafe impl GlobalAlloc for ExplainingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this function, which is that of the called one.
        given(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        given(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`.
        given(unsafe { System.realloc(pointer, layout, new_size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}
