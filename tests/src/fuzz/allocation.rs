//! Counts allocated bytes: a reader that takes much more than its file justifies ends the process, which the fuzzer
//! reports with the input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that are allocated now.
static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
/// The maximum.
static BOUND: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Allowed for any file, for tables of fixed size.
const FIXED: usize = 32 << 20;
/// Allowed for each byte of a file: a name of two bytes from a table compressed a thousandfold, as an event.
const FOR_EACH_BYTE: usize = 16 << 10;

/// Runs `work` on an input of `length` bytes and returns its result.
pub(super) fn bounded<Output>(length: usize, work: impl FnOnce() -> Output) -> Output {
    BOUND.store(ALLOCATED.load(Relaxed) + FIXED + length * FOR_EACH_BYTE, Relaxed);
    let _unbounded = Unbounded;
    work()
}

/// Removes the bound when it is dropped, also by a panic that is caught.
struct Unbounded;

impl Drop for Unbounded {
    fn drop(&mut self) {
        BOUND.store(usize::MAX, Relaxed);
    }
}

/// The counting allocator, for programs that give inputs to the targets: as `#[global_allocator]`.
#[derive(Debug)]
pub struct Counted;

// SAFETY: all memory is the system allocator's, by the layouts that it is asked for.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller upholds the contract of `GlobalAlloc`, which is also that of the system.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as for `alloc`. Zeroed pages are not touched here, so large tables stay cheap.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as for `alloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as for `alloc`.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[allow(clippy::print_stderr, reason = "an allocator has no other way to say why the process ends")]
fn add(size: usize) {
    let allocated = ALLOCATED.fetch_add(size, Relaxed).saturating_add(size);
    let bound = BOUND.load(Relaxed);
    if allocated > bound {
        // The message needs memory itself; and an allocator must not unwind.
        BOUND.store(usize::MAX, Relaxed);
        eprintln!("the reader holds {allocated} bytes, {size} of them at once; the file justifies {bound}");
        std::process::abort();
    }
}
