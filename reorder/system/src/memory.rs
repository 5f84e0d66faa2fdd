//! Returns freed memory to the system between phases.

/// Gives free memory back to the system: what the analysis of a large image took in small pieces stays with the allocator
/// otherwise, and adds to the peak, which the output makes.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` may be called at any time from any thread, and touches free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}
