//! Every profile that can be read, compared with the tools that wrote it.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod corpus;
mod emulators;
mod gcov;
mod lists;
mod llvm_merged;
mod llvm_parity;
mod llvm_raw;
mod llvm_raw_made;
mod machine_ir;
mod offsets;
mod order_buffer;
mod perf;
mod sampling;
mod traces_command;
mod uftrace;
mod write_llvm_text;
mod xray;
