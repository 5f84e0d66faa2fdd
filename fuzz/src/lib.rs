//! The targets for the fuzzer's engine. What they demand of each input is in `tests/src/fuzz`.

pub use end_to_end::fuzz::check;

#[global_allocator]
static COUNTED: end_to_end::fuzz::Counted = end_to_end::fuzz::Counted;
