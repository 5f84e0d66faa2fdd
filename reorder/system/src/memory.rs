//! Returns freed memory to the system between phases.

/// Returns free memory to the system. The analysis of a large image allocates many small pieces; without this call the
/// allocator keeps them, and they add to the peak, which is reached when the output is written.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time from any thread, and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
