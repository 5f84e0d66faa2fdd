//! The targets for the fuzzer's engine. `tests/src/fuzz` states what each input must satisfy.

pub use end_to_end::fuzz::check;

#[global_allocator]
static COUNTED: end_to_end::fuzz::Counted = end_to_end::fuzz::Counted;
